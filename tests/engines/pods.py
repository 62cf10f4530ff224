"""A pod with all that one may have, which prints the same on every engine that has pods."""

from __future__ import annotations

STEP = '{"emulate": "step", "step": 9}'
"""What a program prints that has made a step."""
POD = """\
program:
  command:
    - sh
    - -c
    - pwd; cat /etc/app/key made; until [ -e /work/reply ]; do sleep 0.05; done; cat /work/reply
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
    sidecars:
      - name: echo
        command:
          - sh
          - -c
          - >-
            echo of $EMULATOR_TASK; hostname; echo from ${task} > /w/new; mv /w/new /w/reply;
            exec sleep 1000
        mounts: {/w: {scratch: work}}
"""


def printed(index: int) -> tuple[list[str], list[str]]:
    """Return what a task of it prints, and what its side-car does."""
    name = f"worker-{index}"
    task = ["[first] drwxrwxrwx", f"[first] {STEP}", "[second] x", "[second] 600"]
    task += ["/srv/job", "the key", f"{index}", f"from {name}"]
    # On the network of its task, it has the task's host name.
    return task, [f"of {name}", name]
