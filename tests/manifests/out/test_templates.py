"""Texts of tasks as one text of a pod template, which a pod turns back into its own."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emulator.manifests.out.templates import Different, Template, escaped, template
from tests.manifests.out.exporting import in_pod


def test_what_differs_is_a_number_that_follows_the_index() -> None:
    made = template([f'{{"task": {{"type": "worker", "index": {n}}}}}' for n in range(12)])
    assert made.text == '{"task": {"type": "worker", "index": $(EMULATOR_INDEX)}}'
    assert not made.computes
    rank = template(["--rank=1", "--rank=2", "--rank=3"])  # which a shell computes
    assert rank == Template(("--rank=", 1))
    assert rank.computes
    assert rank.word == '--rank="$((EMULATOR_INDEX + 1))"'
    assert template(["port 2222"] * 3) == Template(("port 2222",))
    assert template(["", ""]).text == ""


@pytest.mark.parametrize(
    "texts", [["a", "b"], ["0", "2"], ["a0", "0"], ["00", "01"], ["x", "1"], ["7", "6"]]
)
def test_other_differences_can_not_be_said(texts: list[str]) -> None:
    with pytest.raises(Different):
        template(texts)


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("$HOME", "$HOME"),
        ("$(date)", "$$(date)"),
        ("$$", "$$$$"),
        ("$$(x)", "$$$$(x)"),
        ("cost: 5$", "cost: 5$$"),
        ("a$b$(c", "a$b$$(c"),
    ],
)
def test_dollars_stay_what_they_are(text: str, written: str) -> None:
    assert escaped(text) == written
    command, _ = in_pod({"args": [written]}, 0)
    assert command == [text]


PIECES = st.lists(
    st.sampled_from(["$", "$$", "(", "x)", "EMULATOR_INDEX", "é", '"', "0", "-", " "])
)


@given(before=PIECES.map("".join), after=PIECES.map("".join), more=st.sampled_from([0, 1, 9]))
def test_each_pod_has_the_text_of_its_task(before: str, after: str, more: int) -> None:
    texts = [f"{before}x{index + more}y{after}" for index in range(11)]
    made = template(texts)
    if made.computes:
        return  # by a shell: see test_kubernetes
    index = {"name": "EMULATOR_INDEX", "valueFrom": {}}
    for number, text in enumerate(texts):
        command, _ = in_pod({"env": [index], "args": [made.text]}, number)
        assert command == [text]
