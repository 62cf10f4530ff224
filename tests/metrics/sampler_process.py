"""Runs the sampler in a process of its own, whose loader finds the fake library first.

A line of JSON in, a line of JSON out: `open`, `sample` (with `pids` and the time `now`), `devices`
and `close`.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from typing import Any

from emulator.metrics.gpu import devices
from emulator.metrics.gpu.sampler import GpuSampler


def main() -> None:
    clock = {"now": 0.0}
    sampler: GpuSampler | None = None
    for line in sys.stdin:
        question = json.loads(line)
        clock["now"] = question.get("now", clock["now"])
        answer: Any = None
        match question["do"]:
            case "open":
                sampler = GpuSampler(now=lambda: clock["now"])
                answer = {"why_none": sampler.found.why_none, "unavailable": sampler.unavailable}
            case "sample":
                assert sampler is not None
                used = [asdict(gpu) for gpu in sampler.sample(question["pids"])]
                answer = {"gpus": used, "unavailable": sampler.unavailable}
            case "devices":
                found = devices()
                answer = {**asdict(found), "ids": found.ids}
            case "close":
                assert sampler is not None
                sampler.close()
        print(json.dumps(answer), flush=True)  # noqa: T201  its answer


if __name__ == "__main__":
    main()
