"""A training that Submitit submits, as its documentation has it: nothing here is of ours.

What would be done where a user submits is the first half of `main`: sbatch then starts the second
half in each task. The training goes on until it has been requeued once, and three steps more.
"""

import json
import os
import time
from pathlib import Path

from submitit.core import utils
from submitit.core.submission import process_job


class Training:
    """Makes steps; what Submitit asks of it when the job has to go is `checkpoint`."""

    def __init__(self) -> None:
        self.step = 0

    def __call__(self) -> int:
        """Train; return the step from which it did."""
        began = self.step
        while not began or self.step < began + 3:
            self.step += 1
            line = json.dumps({"emulate": "step", "step": self.step})
            print(line, flush=True)  # noqa: T201  as trainings do
            time.sleep(0.2)
        return began

    def checkpoint(self) -> utils.DelayedSubmission:
        """Return how the job goes on."""
        return utils.DelayedSubmission(self)


def main() -> None:
    """Submit the training where that was not done, and run it."""
    folder, job = Path(os.environ["EMULATOR_SHARED"]), os.environ["SLURM_JOB_ID"]
    submitted = utils.JobPaths(folder, job).submitted_pickle
    if os.environ["SLURM_PROCID"] == "0" and not submitted.exists():
        submission = utils.DelayedSubmission(Training())
        submission.set_timeout(60, 3)
        submission.dump(submitted)
    os.environ["SUBMITIT_EXECUTOR"] = "slurm"
    process_job(folder)


if __name__ == "__main__":
    main()
