"""A pod with all that one may have, which prints the same on every engine that has pods."""

from __future__ import annotations

from typing import Any

from emulator.record.events import Entry, Step
from emulator.record.reader import Record
from emulator.results import Result

STEP = '{"emulate": "step", "step": 9}'
"""What a program prints that has made a step."""
POD = """\
program:
  command:
    - sh
    - -c
    - pwd; cat /etc/app/key made
  entrypoint: none
  working_dir: /srv/job
  files: {/etc/app/key: "the key\\n"}
cluster:
  worker:
    replicas: 2
    mounts: {/work: {scratch: work}, /srv/job: {scratch: made}}
    init:
      - name: first
        command:
          - sh
          - -c
          - echo ${index} > /data/number; ls -ld /data | cut -c 1-10; echo "$0"
          - '{"emulate": "step", "step": 9}'
        mounts: {/data: {scratch: work}}
      - name: second
        command: [sh, -c, "cat /data/number > /out/made; cat /x; stat -c %a /x"]
        files: {/x: {base64: eAo=, mode: "0600"}}
        mounts: {/data: {scratch: work}, /out: {scratch: made}}
"""


class Noting:
    """Notes what the tasks of runs print."""

    printed: list[str]
    """Each line with its task."""

    def of(self, name: str) -> list[str]:
        """Return what was printed under a name."""
        return [one.partition(": ")[2] for one in self.printed if one.startswith(f"{name}: ")]

    def note(self, lines: Any) -> None:
        self.printed += [f"{task}: {text}" for task, text in lines]


def history(result: Result, kind: type[Entry]) -> list[Any]:
    return [entry for entry in Record(result.folder).history if isinstance(entry, kind)]


def check(site: Noting, result: Result) -> None:
    """Check a run of POD."""
    assert (result.outcome, result.exit_code) == ("succeeded", 0)
    for index in (0, 1):
        name = f"worker-{index}"
        task = ["[first] drwxrwxrwx", f"[first] {STEP}", "[second] x", "[second] 600"]
        task += ["/srv/job", "the key", f"{index}"]
        assert site.of(name) == task
    # The training has made no step.
    assert history(result, Step) == []
