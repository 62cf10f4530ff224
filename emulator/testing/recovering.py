"""What tests have left whose process was killed, or whose run went wrong: the next removes it."""

from __future__ import annotations

import logging

from emulator.broker import Broker, Claim
from emulator.errors import EmulatorError, InUse
from emulator.leftovers import remove

__all__ = ["recover", "sweep"]

log = logging.getLogger("emulator")


def sweep() -> None:
    """Remove what every test has left whose process was killed."""
    try:
        Broker().recover_dead(recover)
    except EmulatorError as error:
        log.warning("what killed tests have left is not removed: %s", error)


def recover(claim: Claim) -> None:
    """Remove what is left of the runs of a claim, unless somebody took them over."""
    for run in claim.runs:
        try:
            remove(run.run_id, run.engine, run.folder)
        except InUse:
            log.info("%s is left alone: an emulator is at work on it", run.run_id)
        except EmulatorError as error:  # to be found by `emulate clean`, once its engine is well
            log.warning("what %s has left is not removed: %s", run.run_id, error)
