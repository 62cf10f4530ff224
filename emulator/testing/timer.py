"""A test's timeout does not run while it waits for its turn (hooks of pytest-timeout)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest

__all__ = ["pytest_timeout_cancel_timer", "pytest_timeout_set_timer", "untimed"]

TIMER = pytest.StashKey[Any]()


@pytest.hookimpl(optionalhook=True, tryfirst=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: Any) -> None:  # noqa: ANN401  its own type
    """Note how the timer was set, so that it can be set again."""
    item.stash[TIMER] = settings


@pytest.hookimpl(optionalhook=True, tryfirst=True)
def pytest_timeout_cancel_timer(item: pytest.Item) -> None:
    """Forget it: another try of the test sets its own."""
    if TIMER in item.stash:
        del item.stash[TIMER]


@contextlib.contextmanager
def untimed(item: pytest.Item) -> Iterator[None]:
    """Stop the test's timer meanwhile; it starts anew afterwards."""
    settings = item.stash.get(TIMER, None)
    if settings is None:
        yield
        return
    item.ihook.pytest_timeout_cancel_timer(item=item)
    try:
        yield
    finally:
        item.ihook.pytest_timeout_set_timer(item=item, settings=settings)
