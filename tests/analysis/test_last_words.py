"""The lines that say why a task ended, of recorded real outputs and of hostile ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from emulator.analysis.failed_output import LEFT_OUT, MOST, WIDTH, exceptions, last_words

OUTPUTS = Path(__file__).parent / "outputs"
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
    assert words.count("ValueError: 7") == 1
    assert words[-1] == "ValueError: 7"
    assert LEFT_OUT not in words
