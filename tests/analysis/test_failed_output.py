"""Why a task ended, and known errors: of recorded real outputs, and of hostile ones."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from emulator.analysis.failed_output import (
    DOCS,
    HINTS,
    LEFT_OUT,
    MOST,
    WIDTH,
    Hint,
    Place,
    exceptions,
    is_boilerplate,
    known_errors,
    last_words,
    tells,
)

ROOT = Path(__file__).parents[2]
OUTPUTS = Path(__file__).parent / "outputs"
RECORDED = sorted(OUTPUTS.glob("*.txt"))
LONGEST = 250
"""Characters of an advice: one line of a wide terminal or two of a narrow one."""
TRACE = ("Traceback (most recent call last):", '  File "a.py", line 1, in <module>')


def recorded(name: str) -> list[str]:
    return (OUTPUTS / name).read_text().split("\n")


@pytest.mark.parametrize(
    ("output", "line"),
    [
        # Below it is the table that torchrun prints, of 30 lines.
        ("unknown.torchrun.txt", "[rank0]: RuntimeError: [/__w/pytorch/pytorch/third_party/gloo"),
        # Below it is the exception of the main process, and the complaints of two processes.
        ("shared-memory.bus-error.txt", "RuntimeError: DataLoader worker (pid 9) is killed by si"),
        # The cause in a chain of exceptions of 60 lines.
        ("name-resolution.txt", "socket.gaierror: [Errno -2] Name or service not known"),
        ("tls.requests.txt", "urllib3.exceptions.SSLError: [SSL: CERTIFICATE_VERIFY_FAILED]"),
        ("tls.keras.txt", "Exception: URL fetch failure on https://localhost:8443/mnist.npz"),
    ],
)
def test_an_exception_keeps_its_own_line(output: str, line: str) -> None:
    lines = recorded(output)
    words = last_words(lines)
    assert any(word.startswith(line) for word in words)
    assert [word for word in words if word != LEFT_OUT][-1].strip() == lines[-2].strip()[:WIDTH]
    assert len([word for word in words if word != LEFT_OUT]) == MOST


def test_a_message_of_many_lines_keeps_its_first_ones() -> None:
    message = [f"  {n}: value" for n in range(500)]
    words = last_words(
        ["step 1", *TRACE, "    step()", "ValueError: can't convert", *message, "to a Tensor."]
    )
    assert words[:4] == ("ValueError: can't convert", "  0: value", "  1: value", LEFT_OUT)
    assert words[-1] == "to a Tensor."


def test_tracebacks_of_two_processes_that_are_mixed_keep_both_exceptions() -> None:
    frames = [f'  File "/app/train.py", line {n}, in step' for n in range(20)]
    mixed = [
        "Traceback (most recent call last):Traceback (most recent call last):",
        "",
        *frames,
        "OSError: [Errno 30] Read-only file system: '/shared/a'",
        *frames,
        "OSError: [Errno 30] Read-only file system: '/shared/b'",
        *[f"[node-{n}] Abort signal sent" for n in range(20)],
    ]
    assert {mixed[22], mixed[-21]} < set(last_words(mixed))


def test_what_python_ignores_at_exit_is_no_reason() -> None:
    ignored = "Exception ignored in: <function Pool.__del__ at 0x7f>"
    lines = [*TRACE, "KeyError: 7", *[ignored, *TRACE, "ResourceWarning: unclosed"] * 20]
    assert [lines[one.line] for one in exceptions(lines)] == ["KeyError: 7"]
    assert "KeyError: 7" in last_words(lines)


def test_lines_that_a_group_of_exceptions_indents_are_found() -> None:
    lines = [
        "  + Exception Group Traceback (most recent call last):",
        '  |   File "a.py", line 1, in <module>',
        "  | ExceptionGroup: two (1 sub-exception)",
        "  +-+---------------- 1 ----------------",
        "    | Traceback (most recent call last):",
        '    |   File "a.py", line 2, in f',
        "    | OSError: 5",
        "    +------------------------------------",
    ]
    assert "    | OSError: 5" in [lines[one.line] for one in exceptions(lines)]


def test_short_output_is_kept_whole_and_long_lines_are_cut_in_their_middle() -> None:
    assert last_words(["", "hello", "   ", "bye\r"]) == ("hello", "bye")
    assert last_words([]) == ()
    assert last_words(["1/3 \b\b\b\b2/3 \r3/3 done"]) == ("3/3 done",)  # as it was last drawn
    begin, end = WIDTH - WIDTH // 3, WIDTH // 3
    assert last_words(["a" * 5000 + "z" * 5000]) == (f"{'a' * begin} {LEFT_OUT} {'z' * end}",)


def test_many_tracebacks_leave_half_of_the_lines_to_the_end() -> None:
    traces = [line for n in range(100) for line in (*TRACE, f"E: {n}", "more", "text")]
    words = last_words([*traces, *(f"last {n}" for n in range(40))], tells=lambda line: True)
    assert len([word for word in words if word != LEFT_OUT]) == MOST
    assert words[-(MOST // 2) :] == tuple(f"last {n}" for n in range(40 - MOST // 2, 40))


def test_an_exception_that_each_start_raised_is_kept_once() -> None:
    raised = [*(f"step {n}" for n in range(40)), *TRACE, "ValueError: 7"]
    words = last_words(raised * 3)
    assert words[-1] == "ValueError: 7 (3 times)"
    assert sum("ValueError" in word for word in words) == 1
    assert LEFT_OUT not in words


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.name)
def test_a_recorded_output_gets_the_hint_that_it_is_named_after(path: Path) -> None:
    name, lines = path.name.partition(".")[0], path.read_text().split("\n")
    known = [] if name == "unknown" else [name]
    assert [found.hint.name for found in known_errors({"worker-0": lines})][:1] == known
    if known:  # the line is among the last words
        assert any(map(tells, last_words(lines, tells=tells)))


@pytest.mark.parametrize("hint", HINTS, ids=lambda hint: hint.name)
def test_each_entry_has_a_recording_a_section_and_one_sentence(hint: Hint) -> None:
    recordings = [path for path in RECORDED if path.name.partition(".")[0] == hint.name]
    assert recordings, f"tests/analysis/outputs has no recorded output for {hint.name}"
    page = (ROOT / DOCS).read_text()
    assert f"\n## {hint.name}\n" in page  # GitHub makes the anchor from this heading
    assert re.fullmatch(r"[^.]+(\.[^. ][^.]*)*\.", hint.advice), "one sentence"
    assert "\n" not in hint.advice
    assert len(hint.advice) <= LONGEST


def test_the_page_explains_nothing_that_is_not_in_the_table() -> None:
    headings = re.findall(r"(?m)^## ([a-z0-9-]+)$", (ROOT / DOCS).read_text())
    assert sorted(headings) == sorted(hint.name for hint in HINTS)


def test_an_error_that_the_program_has_survived_gives_no_hint() -> None:
    early = "[W socket.cpp] The IPv6 network addresses of (a, 1) ... Name or service not known)."
    trace = ["Traceback (most recent call last):", '  File "a.py", line 1', "ValueError: no"]
    steps = [f'{{"emulate": "step", "step": {n}}}' for n in range(200)]
    assert list(known_errors({"worker-0": [early, *steps, *trace]})) == []
    (found,) = known_errors({"worker-0": [early, *trace]})
    assert found.hint.name == "name-resolution"


def test_a_known_error_of_several_tasks_is_one_hint() -> None:
    line = "ValueError: There is no id for task_type 'ps'"
    (found,) = known_errors({"ps-0": ["a", line], "ps-1": [line], "worker-0": ["fine"]})
    assert (found.tasks, found.line) == (("ps-0", "ps-1"), line)


@pytest.mark.parametrize(
    ("module", "image", "advice"),
    [
        ("torch", "emulator-cpu:0123456789ab", "emulator-cpu has no torch: `image: pytorch`."),
        ("jax", "h:5000/t/emulator-pytorch:01@sha256:00", "emulator-pytorch has no jax: `image: j"),
        (
            "tqdm",
            "emulator-cpu:0123456789ab",
            "emulator-cpu has no tqdm: two lines of Dockerfile, `FROM emulator-cpu` and `RUN pip "
            "install tqdm`, and `image: {dockerfile: Dockerfile}`, or if it is a file of yours, ",
        ),
        (
            "yaml",
            "python:3.11-slim",
            "python:3.11-slim has no yaml: two lines of Dockerfile, `FR",
        ),
        ("cv2", "emulator-custom:01", "The image of your Dockerfile has no cv2: add `RUN pip inst"),
        ("torch", "process", "/env/bin/python has no torch: activate the environment that has it "),
        ("a", "", "What the task runs in has not this module: "),
    ],
)
def test_a_missing_module_says_what_to_write(module: str, image: str, advice: str) -> None:
    lines = [*TRACE, f"ModuleNotFoundError: No module named '{module}'"]
    place = Place(image) if image != "process" else Place(python="/env/bin/python")
    (found,) = known_errors({"worker-0": lines}, {"worker-0": place})
    assert found.advice.startswith(advice)
    assert len(found.advice) <= LONGEST


def test_no_line_takes_long_to_search() -> None:
    for hint in HINTS:
        for piece in ("a" * 300_000, "unable to write to file " * 10_000, "DistStore" * 30_000):
            hint.pattern.search(piece)


# --- Lines that libraries print at every start, and lines that look like them ---------------------

ONE_DNN = (
    "I0000 00:00:1795403025.035769       7 port.cc:153] oneDNN custom operations are on. You may "
    "see slightly different numerical results due to floating-point round-off errors from "
    "different computation orders. To turn them off, set the environment variable "
    "`TF_ENABLE_ONEDNN_OPTS=0`."
)
BOILERPLATE = (
    ONE_DNN,
    "WARNING: All log messages before absl::InitializeLog() is called are written to STDERR",
    "I0000 00:00:1795403025.042107       7 cudart_stub.cc:31] Could not find cuda drivers on your "
    "machine, GPU will not be used.",
    "E0000 00:00:1795403077.081937       7 cuda_platform.cc:52] failed call to cuInit: INTERNAL: "
    "CUDA error: Failed call to cuInit: UNKNOWN ERROR (303)",
    "2026-11-20 09:44:16.123456: I tensorflow/core/platform/cpu_feature_guard.cc:227] This "
    "TensorFlow binary is optimized to use available CPU instructions in performance-critical "
    "operations.",
    "To enable the following instructions: AVX2 AVX512F FMA, in other operations, rebuild "
    "TensorFlow with the appropriate compiler flags.",
    "2026-11-20 09:44:16.123456: E external/local_xla/xla/stream_executor/cuda/cuda_fft.cc:467] "
    "Unable to register cuFFT factory: Attempting to register factory for plugin cuFFT when one "
    "has already been registered",
)
WORTH_READING = (
    "E0000 00:00:1795403077.081937       7 ring_alg.cc:291] Aborting RingReduce with UNAVAILABLE",
    "I0000 00:00:1795403077.081937       7 coordination_service.cc:502] Waiting for 1/2 tasks",
    "oneDNN custom operations are on in my program",
    "RuntimeError: failed call to cuInit",
    '{"emulate": "step", "step": 120}',
    "",
)


@pytest.mark.parametrize(
    ("line", "is_one"),
    [*((line, True) for line in BOILERPLATE), *((line, False) for line in WORTH_READING)],
)
def test_what_every_start_prints_is_boilerplate(line: str, *, is_one: bool) -> None:
    assert is_boilerplate(line) is is_one


def test_the_last_words_have_none_of_it_unless_nothing_else_was_printed() -> None:
    assert last_words([*BOILERPLATE, "no data", "Killed"]) == ("no data", "Killed")
    assert last_words([ONE_DNN]) == (ONE_DNN,)


def test_no_line_of_a_recorded_failure_that_says_why_is_left_out() -> None:
    """The patterns are for the first lines of a log."""
    for path in sorted((Path(__file__).parent / "outputs").iterdir()):
        text = path.read_text(encoding="utf-8", errors="replace")
        left_out = [line for line in text.splitlines() if is_boilerplate(line)]
        assert not [line for line in left_out if "Error: " in line], path


def test_the_last_words_have_no_steps_unless_nothing_else_was_printed() -> None:
    steps = [f'{{"emulate": "step", "step": {n}, "loss": NaN}}' for n in range(20)]
    saves = '{"emulate": "phase", "phase": "checkpoint", "state": "begin"}'
    assert last_words([*steps, saves, *steps, "no disk"]) == (saves, "no disk")
    assert last_words(steps[:2]) == tuple(steps[:2])
    other = '{"step": 1}'
    assert last_words([other, "{", *steps]) == (other, "{")
