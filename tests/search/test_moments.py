"""The list of `--at`, and the moments of a recorded save."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

import pytest

from emulator.errors import UsageError
from emulator.record.events import Entry, KernelCall
from emulator.scenario.loader import parse as scenario
from emulator.search.moments import CallsOfSave, Moment, Whole, parse, spread
from emulator.search.saves import of_second_save, recorded


def triggers(text: str) -> list[object]:
    asked = parse(text)
    return [*(moment.at for moment in asked.moments), *((one.kind, one.of) for one in asked.calls)]


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("step 50", [{"step": 50}]),
        ("steps 10..30 by 10", [{"step": 10}, {"step": 20}, {"step": 30}]),
        ("steps 8..9, step 9", [{"step": 8}, {"step": 9}]),
        ("phase checkpoint", [{"phase": "checkpoint"}]),
        ("40s", [{"time": "40s"}]),
        ("times 500ms..1s by 250ms", [{"time": "500ms"}, {"time": "750ms"}, {"time": "1s"}]),
        ("times 5s..10s", [{"time": "5s"}, {"time": "10s"}]),
        ("every write of a save", [("write", "*")]),
        ("each rename", [("rename", "*")]),
        ("each call of a save", [("call", "*")]),
        ("each call of *.pt", [("call", "*.pt")]),
        ("every write of *.pt of a save", [("write", "*.pt")]),
        ("every fsync of *.pt,  phase  eval", [{"phase": "eval"}, ("fsync", "*.pt")]),
    ],
)
def test_a_list_of_moments(text: str, meant: Sequence[object]) -> None:
    assert triggers(text) == meant
    for moment in parse(text).moments:  # each is a trigger of a scenario
        fault = json.dumps({"kill": "worker-0", "at": moment.at})
        scenario(f"name: a\nprogram: {{command: [a]}}\ncluster: {{worker: 1}}\nfaults: [{fault}]")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "--at has no moments."),
        (" , ", "--at has no moments."),
        ("soon", "Known are: each call of a save,"),
        ("phase lunch", "Phases are startup, data,"),
        ("steps ten", "Steps are numbers:"),
        ("steps 20..10", "A range goes up"),
        ("steps 1..9 by 0", "A range goes up"),
        ("steps 0..1000000", "more than 1,000 moments"),
        ("times 1s..2", "Times have a unit:"),
        ("times 0s..9s", "A range goes up"),
        ("times 0s..3h by 1s", "more than 1,000 moments"),
        ("every save", "Calls are write, truncate, fsync, rename, unlink; `call`"),
        ("every write of a b", "For example `every write of *.pt`"),
    ],
)
def test_what_is_no_moment_is_refused_with_what_is_known(text: str, said: str) -> None:
    with pytest.raises(UsageError) as refusal:
        parse(text)
    assert said in str(refusal.value)


def test_of_too_many_moments_some_are_chosen_evenly() -> None:
    moments = [Moment(str(number), {"step": number}) for number in range(11)]
    assert [one.words for one in spread(moments, 3)] == ["0", "5", "10"]
    assert spread(moments, 11) == spread(moments, 99) == moments
    assert [one.words for one in spread(moments, 1)] == ["0"]


# --- The calls of a save --------------------------------------------------------------------------


def call(kind: str, path: str, to: str | None = None, task: str = "worker-0") -> KernelCall:
    size = 10 if kind == "write" else None
    return KernelCall(task=task, call=kind, path=path, to=to, bytes=size)


def line(
    state: str, task: str = "worker-0", phase: str = "checkpoint", step: int | None = None
) -> KernelCall:
    told = {"emulate": "phase", "phase": phase, "state": state, "step": step}
    return KernelCall(task=task, line=json.dumps(told))


def whole_save(name: str) -> list[Entry]:
    tmp = f"/runs/a/shared/{name}.tmp"
    return [
        *(call("write", tmp), call("write", tmp), call("fsync", tmp)),
        call("rename", tmp, f"/runs/a/shared/{name}"),
    ]


def in_phase(calls: Sequence[Entry], step: int | None = None) -> list[Entry]:
    return [line("begin", step=step), *calls, line("end", step=step)]


FOLDERS = [("/runs/a/shared", "/shared/"), ("/runs/a/work/worker-0", "")]
CACHE = call("write", "/runs/a/work/worker-0/__pycache__/x-311.pyc")
SAVES = [CACHE, *in_phase(whole_save("m-10.pt")), CACHE, *in_phase(whole_save("m-20.pt"))]


def aimed(history: Sequence[Entry], *asked: CallsOfSave, target: str = "worker-0") -> list[object]:
    found = recorded(history, "worker-0")
    return [moment.at for moment in of_second_save(asked, found, FOLDERS, target)]


def test_the_moments_are_those_of_the_second_save_and_count_from_the_beginning() -> None:
    of = "/shared/m-*.pt.tmp"
    assert aimed(SAVES, CallsOfSave("write"), CallsOfSave("rename")) == [
        {"write": 3, "of": of},
        {"write": 4, "of": of},
        {"rename": 2, "of": of},
    ]
    assert aimed(SAVES, CallsOfSave("fsync"), target="worker-1") == [
        {"fsync": 2, "of": of, "task": "worker-0"}
    ]
    assert aimed(SAVES, CallsOfSave("rename", "*.pt")) == [{"rename": 2, "of": of}]


@pytest.mark.parametrize(
    ("first", "second", "of"),
    [
        ("m-10.pt", "m-20.pt", "/shared/m-*.pt"),
        ("m.pt", "m.pt", "/shared/m.pt"),
        ("gpt2.pt", "gpt2.pt", "/shared/gpt2.pt"),
        ("tmpk3x/m.pt", "tmpaab/m.pt", "/shared/tmp*/m.pt"),
        ("d/6daa8", "d/6c778", "/shared/d/*"),  # the same by chance
        ("ckpt.tmp8d1f2", "ckpt.tmp89aa0", "/shared/ckpt.tmp*"),
        ("v2/10/.tmpQ87Dn1", "v2/20/.tmpq4Sd5A", "/shared/v2/*/.tmp*"),
        ("a[1].pt", "a[2].pt", "/shared/a?*?.pt"),
        ("aa.pt", "aaa.pt", "/shared/*.pt"),
    ],
)
def test_a_name_that_changes_becomes_a_glob(first: str, second: str, of: str) -> None:
    saves = [in_phase([call("write", f"/runs/a/shared/{name}")]) for name in (first, second)]
    (moment,) = aimed([*saves[0], *saves[1]], CallsOfSave("write"))
    assert moment == {"write": 2, "of": of}


def test_random_names_are_compared_in_all_saves() -> None:
    """Of two, a part may be the same by chance."""
    names = ("ckpt.tmpab1", "ckpt.tmpad2", "ckpt.tmp7c3")
    calls = [one for name in names for one in in_phase([call("write", f"/runs/a/shared/{name}")])]
    assert aimed(calls, CallsOfSave("write")) == [{"write": 2, "of": "/shared/ckpt.tmp*"}]


def test_without_phases_a_save_is_what_is_done_again_and_again() -> None:
    calls = [one for number in (10, 20, 30) for one in whole_save(f"m-{number}.pt")]
    found = [[*one.calls] for one in recorded(calls, "worker-0").saves]
    assert found == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
    assert aimed(calls, CallsOfSave("fsync")) == [{"fsync": 2, "of": "/shared/m-*.pt.tmp"}]


RANDOM = ["", "k3x9a_b1", "ukh5301z", "9v5gej7n", "72asxl_q", "5_r38j0a", "i29k3y17"]


def test_without_steps_a_save_is_what_is_called_between_two_pauses() -> None:
    """As Lightning does it: beside the folder under a random name, two files, and a log."""
    run, log = "/runs/a/shared", "/runs/a/shared/events.out.123"
    calls = [replace(call("write", "/tmp/zvdrktws"), t=1), replace(call("write", log), t=30)]
    for number in (1, 2, 3):
        for t, name, at in ((0, "step={}.ckpt", 0), (0.01, "last.ckpt", 1)):
            tmp, kept = f"/tmp/tmp{RANDOM[2 * number - at]}", f"{run}/{name.format(10 * number)}"
            calls += [
                replace(one, t=30 + number + t)
                for one in (call("write", tmp), call("rename", tmp, kept))
            ]
        old = call("unlink", f"{run}/step={10 * number - 10}.ckpt")
        calls += [replace(old, t=30.02 + number), replace(call("write", log), t=30.5 + number)]
    saves = recorded(calls, "worker-0", run="/runs/a").saves
    assert [[*one.calls] for one in saves] == [
        [2, 3, 4, 5, 6],
        [8, 9, 10, 11, 12],
        [*range(14, 19)],
    ]
    assert aimed(calls, CallsOfSave("rename", "last.ckpt")) == [{"rename": 4, "of": "/tmp/tmp*"}]


def test_phases_for_the_same_step_are_one_save() -> None:
    history: list[Entry] = []
    for step in (10, 20):
        for name in (f"{step}.pt", "last.pt"):
            history += in_phase(whole_save(name), step)
    saves = recorded(history, "worker-0").saves
    assert [(one.step, len(one.calls)) for one in saves] == [(10, 8), (20, 8)]


def printed(text: str) -> KernelCall:
    return KernelCall(task="worker-0", line=text)


def steps(first: int, last: int, *, log: bool = False) -> list[Entry]:
    """Return lines of steps; with a log that is written after each."""
    after = [call("write", "/runs/a/work/worker-0/log.csv")] if log else []
    return [
        one
        for step in range(first, last + 1)
        for one in (printed(f"step {step} loss 0.{step}"), *after)
    ]


def test_what_grows_is_no_save_where_there_is_another() -> None:
    log, saved = call("write", "/runs/a/shared/log"), whole_save("m.pt")
    history = [*steps(1, 5), log, *steps(6, 9), log, *saved, *steps(10, 15), *saved, *steps(16, 17)]
    assert [(one.step, len(one.calls)) for one in recorded(history, "worker-0").saves] == [
        *((9, 4), (15, 4)),
    ]
    history = [*steps(1, 5), log, *steps(6, 9), log, *steps(10, 15)]
    assert [one.step for one in recorded(history, "worker-0").saves] == [5, 9]


def test_a_file_is_known_by_the_name_that_it_gets() -> None:
    """As TensorFlow names its files until they are complete."""
    history: list[Entry] = [*steps(1, 3)]
    for number, name in ((3, "a7b3"), (6, "f00d"), (9, "beef")):
        tmp = f"/runs/a/shared/checkpoint.tmp{name}"
        log = call("write", "/runs/a/shared/events.out.1796131225.vm")
        saved = [call("write", tmp), call("rename", tmp, "/runs/a/shared/checkpoint"), log]
        history += [*saved, *steps(number + 1, number + 3)]
    saves = recorded(history, "worker-0").saves
    assert [(one.step, len(one.calls)) for one in saves] == [(3, 2), (6, 2), (9, 2)]


def test_in_a_phase_what_grows_is_no_save_either() -> None:
    log = call("write", "/runs/a/shared/events.out.1796131225")
    history = [one for name in "ab" for one in in_phase([log, *whole_save(f"{name}.pt"), log])]
    assert [len(one.calls) for one in recorded(history, "worker-0").saves] == [4, 4]
    history = [one for _ in "ab" for one in in_phase([log, log])]
    assert [len(one.calls) for one in recorded(history, "worker-0").saves] == [2, 2]


@pytest.mark.parametrize("log", [False, True])
def test_without_phases_a_save_is_what_is_called_between_two_steps(log: bool) -> None:
    """Not what is written after each step, nor before the first one."""
    begin = [CACHE, call("write", "/runs/a/work/worker-0/config.json")]
    old, new = "/runs/a/shared/m-10.pt", whole_save("m-20.pt")
    history = [*begin, *steps(1, 10, log=log), *whole_save("m-10.pt"), *steps(11, 20, log=log)]
    history += [*new, call("unlink", old), *steps(21, 25, log=log)]
    saves = recorded(history, "worker-0").saves
    assert [(one.step, one.is_exact) for one in saves] == [(10, False), (20, False)]
    assert aimed(history, CallsOfSave("write"), CallsOfSave("unlink")) == [
        {"write": 3, "of": "/shared/m-*.pt.tmp"},
        {"write": 4, "of": "/shared/m-*.pt.tmp"},
        {"unlink": 1, "of": "/shared/m-10.pt"},
    ]


def test_a_program_that_saves_after_each_step_has_no_log() -> None:
    history = [
        one for step in range(1, 6) for one in (*steps(step, step), *whole_save(f"m-{step}.pt"))
    ]
    assert [one.step for one in recorded(history, "worker-0").saves] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("run", ["/tmp/tmpab12cd34/runs/a", "/home/me/.cache/a"])
def test_where_the_folder_of_a_run_is_says_nothing_of_its_files(run: str) -> None:
    path = f"{run}/shared/m.pt"
    cache = call("write", f"{run}/work/worker-0/.cache/x")
    saved = [call("write", path), call("rename", path)]
    history = [*steps(1, 10), cache, *saved, *steps(11, 20), cache, *saved, *steps(21, 22)]
    saves = recorded(history, "worker-0", run=run).saves
    assert [(one.step, len(one.calls)) for one in saves] == [(10, 2), (20, 2)]


def test_a_save_of_whole_files_is_whole_once_nothing_is_left_but_to_keep_and_remove() -> None:
    """What the kernel has, it keeps when a task is killed."""
    history: list[Entry] = []
    for number in (10, 20):
        rest = [call("fsync", "/runs/a/shared/m.pt"), call("unlink", f"/runs/a/shared/x-{number}")]
        history += [*steps(number - 9, number), *whole_save("m.pt"), *rest]
    found = recorded(history, "worker-0")
    moments = of_second_save([CallsOfSave("call")], found, FOLDERS, "worker-0")
    known = [one.whole for one in moments if one.whole is not None]
    assert [(one.step, one.earlier, one.is_exact) for one in known] == [
        *[(10, 0, False)] * 4,
        *[(20, 10, False)] * 2,
    ]


def test_calls_are_counted_where_the_first_save_has_fewer() -> None:
    """It empties nothing: its files are new."""
    first = [call("write", f"/runs/a/shared/{name}") for name in ("a.json", "b.json")]
    again = [
        call(kind, f"/runs/a/shared/{name}")
        for name in ("a.json", "b.json")
        for kind in ("truncate", "write")
    ]
    history = [*steps(1, 5), *first, *steps(6, 9), *again, *steps(10, 11)]
    assert aimed(history, CallsOfSave("call")) == [
        {"truncate": 1, "of": "/shared/a.json"},
        {"write": 2, "of": "/shared/a.json"},
        {"truncate": 1, "of": "/shared/b.json"},
        {"write": 2, "of": "/shared/b.json"},
    ]


@pytest.mark.parametrize(
    ("whole", "resumed", "older"),
    [
        (Whole(20, 10), 19, True),
        (Whole(20, 10), 20, False),
        # Of a step that is known about, the nearer save counts.
        (Whole(19, 9, is_exact=False), 20, False),
        (Whole(21, 11, is_exact=False), 20, False),
        (Whole(21, 11, is_exact=False), 10, True),
        (Whole(19, 17, is_exact=False), 18, True),
        (Whole(10, 0, is_exact=False), 0, True),
    ],
)
def test_a_training_that_went_on_from_an_older_save(
    whole: Whole, resumed: int, *, older: bool
) -> None:
    assert whole.is_newer_than(resumed) == older


@pytest.mark.parametrize(
    ("history", "asked", "said"),
    [
        ([], CallsOfSave("write"), "worker-0 made no save that can be told"),
        (in_phase(whole_save("m-10.pt")), CallsOfSave("write"), "worker-0 made only one save"),
        ([call("write", "/a")] * 9, CallsOfSave("write"), "worker-0 made no save that can be told"),
        (SAVES, CallsOfSave("unlink"), "The second save of worker-0 has no unlink of *."),
    ],
)
def test_where_there_is_nothing_to_aim_at_it_says_so(
    history: Sequence[Entry], asked: CallsOfSave, said: str
) -> None:
    with pytest.raises(UsageError) as refusal:
        aimed(history, asked)
    assert said in str(refusal.value)
