"""What the client says, without a run."""

from __future__ import annotations

import pytest

from emulator.api.client import _awaited, _unwanted
from tests.histories import a_plan


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


def test_a_step_of_an_evaluator_is_waited_for_only_where_it_is_named() -> None:
    plan = a_plan("{chief: 1, evaluator: 1}")
    assert list(_unwanted(9, None, plan)) == ["evaluator-0"]
    assert not _unwanted(9, "evaluator-0", plan)
    assert not _unwanted(None, None, plan)  # any event of its own
