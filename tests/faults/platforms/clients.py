"""A task that asks as users' code does, by clients of others; it prints each change of it.

In a container the folder of this file has the clients from this machine's Python.
"""

import json
import sys
import time
import urllib.error
import urllib.request

from ec2_metadata import EC2Metadata

GOOGLE = "http://metadata.google.internal/computeMetadata/v1/instance/preempted"
AZURE = "http://169.254.169.254/metadata/scheduledevents?api-version=2020-07-01"


def read(url: str, **headers: str) -> str:
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    with urllib.request.urlopen(urllib.request.Request(url, headers=names), timeout=60) as answer:
        return str(answer.read().decode())


def told() -> dict[str, object]:
    amazon = EC2Metadata()
    events = json.loads(read(AZURE, Metadata="true"))["Events"]
    action = amazon.spot_instance_action
    return {
        "azure": [event["Resources"] for event in events],
        "gce": read(GOOGLE, Metadata_Flavor="Google"),
        "ec2": action and [action.action, action.time.timestamp()],
        "id": amazon.instance_id,
    }


def main() -> None:
    before = None
    while True:
        try:
            now = told()
        except OSError as error:
            # Without internet the address answers a moment after the start: docs/notices.md.
            if before is not None or sys.argv[1] == "at-once":
                print(json.dumps({"error": str(error)}), flush=True)  # noqa: T201
            time.sleep(0.05)
            continue
        if now != before:
            print(json.dumps(now), flush=True)  # noqa: T201
        before = now
        time.sleep(0.05)


if __name__ == "__main__":
    main()
