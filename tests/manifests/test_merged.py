"""Merge patches: the examples of RFC 7386, and short forms."""

from __future__ import annotations

from typing import Any

import pytest

from emulator.manifests.assembly import merged

PS, DELAY = {"replicas": 2, "cpus": 1}, {"backoff": "1s"}


@pytest.mark.parametrize(
    ("data", "patch", "result"),
    [  # RFC 7386, appendix A
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        (["a", "b"], ["c", "d"], ["c", "d"]),
        ({"a": "b"}, ["c"], ["c"]),
        ({"a": "foo"}, None, None),
        ({"a": "foo"}, "bar", "bar"),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
        # Not in it: a section that has a short form remains one.
        (
            {"cluster": {"ps": PS}},
            {"cluster": {"ps": 8}},
            {"cluster": {"ps": {**PS, "replicas": 8}}},
        ),
        ({"cluster": {"ps": 2}}, {"cluster": {"ps": {"cpus": 1}}}, {"cluster": {"ps": PS}}),
        ({"restart": "always"}, {"restart": DELAY}, {"restart": {"policy": "always", **DELAY}}),
    ],
)
def test_a_patch_is_merged_as_the_standard_says_and_short_forms_as_well(
    data: Any, patch: Any, result: Any
) -> None:
    assert merged(data, patch) == result
