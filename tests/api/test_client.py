"""What the client says, without a run."""

from __future__ import annotations

import pytest

from emulator.api.client import _awaited


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ((200, None, None, None), "step 200"),
        ((200, None, "worker-1", None), "step 200 of worker-1"),
        ((None, "restart", None, None), "event restart"),
        ((None, None, "worker-1", None), "an event of worker-1"),
        ((None, None, None, None), "an event"),
        ((None, None, None, "fault 0 was applied"), "fault 0 was applied"),
    ],
)
def test_what_was_waited_for_is_said_in_words(
    what: tuple[int | None, str | None, str | None, str | None], words: str
) -> None:
    assert _awaited(*what) == words
