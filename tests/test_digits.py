"""The data of the bundled programs: what a program that resumes reads.

`emulate sweep` calls a program `silently different` that reads other data after a restart. So the
bundled ones have to go on in their data where they stopped.
"""

import runpy
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

pytestmark = pytest.mark.quick
digits = runpy.run_path(str(Path(__file__).parent.parent / "images" / "programs" / "digits.py"))


@pytest.mark.parametrize("skip", [0, 1, 7, 40])
def test_what_is_skipped_is_all_that_differs(skip: int) -> None:
    """Across the end of an epoch: 1437 examples are 11.2 batches of 64 for each of two workers."""
    x, y, *_ = digits["load"](7)

    def some(**more: int) -> list[tuple[np.ndarray, np.ndarray]]:
        return list(islice(digits["batches"](x, y, 64, seed=7, worker=1, workers=2, **more), 50))

    for (x1, y1), (x2, y2) in zip(some()[skip:], some(skip=skip), strict=False):
        np.testing.assert_array_equal(x1, x2)
        np.testing.assert_array_equal(y1, y2)
