"""A run beside those without a fault: what is alike, and what is not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from emulator.analysis.uninterrupted import (
    TOLERANCE,
    Comparison,
    Figures,
    agreed,
    differences,
    figures_of,
)
from tests.histories import happened, step, timeline


def of_steps(*losses: float, last: int | None = None, name: str = "loss") -> Figures:
    values = {str(number): loss for number, loss in enumerate(losses, start=1)}
    return Figures({"worker-0": {name: values}}, last or len(losses))


def of_files(**files: Mapping[str, Any]) -> Figures:
    return Figures(files={f"/shared/{name}.pt": file for name, file in files.items()})


def read(digest: str, **values: Any) -> dict[str, Any]:
    return {"format": "torch", "digest": digest, "values": values}


def array(digest: str, norm: float, *sketch: float) -> dict[str, Any]:
    return {"digest": digest, "shape": [4], "norm": norm, "sketch": [*sketch]}


def number(value: float) -> dict[str, Any]:
    return {"digest": str(value), "number": value}


def test_the_figures_are_the_last_report_of_each_step_after_the_fault() -> None:
    history = [
        happened(0, "start", "worker-0"),
        step(1, "worker-0", 1, loss=3.0, note="x"),
        step(2, "worker-0", 2, loss=2.0),
        step(3, "worker-0", 3, loss=1.5),
        step(4, "worker-0", 2, loss=2.5),
        step(5, "worker-0", 3, loss=1.0),
        step(6, "evaluator-0", 9, loss=9.0),
    ]
    seen = timeline(history, "{worker: 1, evaluator: 1}")
    files = {"/shared/a.pt": {"digest": "a"}}
    every = figures_of(seen, {"files": files})
    assert every == Figures({"worker-0": {"loss": {"1": 3.0, "2": 2.5, "3": 1.0}}}, 3, files)
    assert figures_of(seen, None, since=3).steps == {"worker-0": {"loss": {"2": 2.5, "3": 1.0}}}
    assert figures_of(seen, None, is_anew=True) == Figures()


def test_samples_are_of_the_step_whose_line_comes_next_whatever_their_times_are() -> None:
    """The first steps come at once, once it is known what has them, with earlier times."""
    source = happened(1.3, "step-source", "worker-0", source="lines `step N`", counts=True)
    history = [
        happened(0, "start", "worker-0"),
        *(happened(t, "samples", "worker-0", digest=digest) for t, digest in ((1, "a"), (1, "b"))),
        source,
        *(step(t, "worker-0", number) for t, number in ((1, 1), (1.2, 2))),
        happened(1.5, "samples", "worker-0", digest="c"),
        step(1.4, "worker-0", 3),
        happened(1.7, "samples", "worker-0", digest="d"),
        step(1.6, "worker-0", 4),
    ]
    assert figures_of(timeline(history), None).samples == {"worker-0": {"3": "c", "4": "d"}}


def test_what_two_runs_without_a_fault_have_not_alike_is_not_compared() -> None:
    one, other = of_steps(3.0, 2.0, 1.0), of_steps(3.0, 2.0 + 1e-9, 1.0)
    assert agreed(one, other, TOLERANCE) == (one, [])
    both, differs = agreed(one, of_steps(3.0, 2.5), TOLERANCE)
    assert both.steps == {}
    assert both.last_step is None
    assert differs == ["loss of step 2 of worker-0 is 2 and 2.5", "the last step is 3 and 2"]


def test_where_numbers_differ_without_a_fault_nothing_else_tells() -> None:
    """The step that was saved last is the same, whatever the weights are."""
    files = of_files(a=read("a", step=number(3))).files
    one, other = (replace(of_steps(loss), files=files) for loss in (3.0, 2.0))
    both, _ = agreed(one, other, TOLERANCE)
    found = differences(replace(of_steps(9.0), files=files), both, TOLERANCE)
    why = "two runs without a fault differ: loss of step 1 of worker-0 is 3 and 2"
    assert found == Comparison(missing=(why,))
    # What both have alike may be so by luck.
    alike = replace(both, files=of_files(a=read("a", step=number(3), bias=number(0.5))).files)
    other_bias = of_files(a=read("b", step=number(3), bias=number(0.6))).files
    assert differences(replace(of_steps(9.0), files=other_bias), alike, TOLERANCE).differs == ()
    by_luck = replace(both, steps={"worker-0": {"accuracy": {"1": 0.97}}})
    found = differences(replace(of_steps(0.96, name="accuracy"), files=files), by_luck, TOLERANCE)
    assert found.differs == ()
    late = replace(of_steps(9.0, last=7), files=of_files(a=read("b", step=number(2))).files)
    assert differences(late, both, TOLERANCE).differs == (
        "it ended with step 7, and without a fault with 1",
        "step in /shared/a.pt is 2, and without a fault 3",
    )


@pytest.mark.parametrize(("name", "tells"), [("bubble", False), ("loss", True)])
def test_where_arrays_are_alike_only_a_loss_that_is_not_tells(name: str, *, tells: bool) -> None:
    files = of_files(a=read("a", w=array("w", 2.0, 1.0))).files
    one, other = (replace(of_steps(value, name=name), files=files) for value in (3.0, 2.0))
    both, differs = agreed(one, other, TOLERANCE)
    assert differs == [f"{name} of step 1 of worker-0 is 3 and 2"]
    assert bool(both.unlike) == tells
    found = differences(replace(of_steps(9.0, name=name), files=files), both, TOLERANCE)
    assert found.compared == (() if tells else ("/shared/a.pt",))


@pytest.mark.parametrize(
    ("one", "other", "tells"),
    [
        ({"format": "file", "digest": "a"}, {"format": "file", "digest": "b"}, False),
        ({"format": "torch", "digest": "a"}, {"format": "torch", "digest": "b"}, True),
        (read("a", when=number(1.796e9)), read("b", when=number(1.7961e9)), False),
        (read("a", when=number(1.796e12)), read("b", when=number(1.7961e12)), False),
        (read("a", host={"digest": "x"}), read("b", host={"digest": "y"}), False),
        (read("a", w=array("w", 2.0, 1.0)), read("b", w=array("x", 2.0, 1.5)), True),
        (read("a", w=number(0.5)), read("b", w=number(0.6)), True),
    ],
)
def test_a_log_or_when_a_file_was_saved_says_nothing_of_the_training(
    one: Any, other: Any, *, tells: bool
) -> None:
    both, differs = agreed(of_files(a=one), of_files(a=other), TOLERANCE)
    assert len(differs) == 1
    assert bool(both.unlike) == tells


def test_losses_are_compared_by_step() -> None:
    twin = of_steps(3.0, 2.0, 1.0)
    found = differences(of_steps(3.0, 2.0, 1.0), twin, TOLERANCE)
    assert found == Comparison(("loss of 3 steps of worker-0",))
    found = differences(of_steps(3.0, 2.1, 1.1), twin, TOLERANCE)
    assert found.differs == ("loss of step 2 of worker-0 is 2.1, and without a fault 2",)
    assert differences(of_steps(3.0, 2.1, 1.1), twin, 0.1).differs == ()
    found = differences(of_steps(3.0, 2.0), twin, TOLERANCE)
    assert found.differs == ("it ended with step 2, and without a fault with 3",)


@pytest.mark.parametrize(
    "name", ["seconds", "step_time", "tokens_per_second", "eta", "mem_gb", "v_num"]
)
def test_what_measures_the_machine_is_not_compared(name: str) -> None:
    """Two runs may have it alike by luck."""
    seen = timeline([happened(0, "start", "worker-0"), step(1, "worker-0", 1, **{name: 1.0})])
    assert figures_of(seen, None).steps == {}


def test_files_of_the_same_bytes_are_alike_and_others_by_what_they_have() -> None:
    twin = of_files(a=read("a", w=array("w", 2.0, 1.0, -1.0), step=number(3)))
    assert differences(of_files(a={"digest": "a"}), twin, 0.0).compared == ("/shared/a.pt",)
    near = read("b", w=array("x", 2.0, 1.0 + 1e-8, -1.0), step=number(3))
    assert differences(of_files(a=near), twin, TOLERANCE) == Comparison(("/shared/a.pt",))
    far = read("b", w=array("x", 2.0, 1.002, -1.002), step=number(4))
    assert differences(of_files(a=far), twin, TOLERANCE).differs == (
        "w in /shared/a.pt differs from what it is without a fault, by about 0.001 of its size",
        "step in /shared/a.pt is 4, and without a fault 3",
    )
    lacks = read("b", step=number(3))
    assert differences(of_files(a=lacks), twin, TOLERANCE).differs == (
        "w is missing in /shared/a.pt",
    )
    other = read("b", w={**array("x", 2.0, 1.0, -1.0), "shape": [5]}, step=number(3))
    assert differences(of_files(a=other), twin, TOLERANCE).differs == (
        "w in /shared/a.pt differs from what it is without a fault",
    )


def test_what_can_t_be_read_differs_and_what_is_not_there_is_missing() -> None:
    twin = of_files(a=read("a", step=number(3)), b={"digest": "b"}, c={"digest": "c"})
    run = of_files(a={"digest": "x", "broken": "it is cut off"}, b={"digest": "y"})
    assert differences(run, twin, TOLERANCE) == Comparison(
        differs=(
            "/shared/a.pt can't be read: it is cut off",
            "/shared/b.pt has other bytes than without a fault",
        ),
        missing=("/shared/c.pt is not there",),
    )
    unread = of_files(a={"digest": "x", "unread": "there is no module torch"})
    found = differences(unread, of_files(a=read("a", step=number(3))), TOLERANCE)
    assert found == Comparison(missing=("/shared/a.pt: there is no module torch",))


def test_values_that_two_runs_have_not_alike_are_not_compared() -> None:
    """Such as when a file was saved."""
    one, other, third = (
        of_files(a=read(str(when), step=number(3), when=number(1_796_000_000 + when)))
        for when in (1, 2, 3)
    )
    both, differs = agreed(one, other, 0.0)
    assert both.files == {"/shared/a.pt": {"format": "torch", "values": {"step": number(3)}}}
    assert differs == ["when in /shared/a.pt is 1796000001, and in the other 1796000002"]
    assert differences(third, both, 0.0) == Comparison(("/shared/a.pt",))
