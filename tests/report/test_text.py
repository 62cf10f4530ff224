"""Text that programs print, as it is shown, and events in words."""

from __future__ import annotations

import contextlib
import json
import re
from pathlib import Path
from typing import Any

import pytest

from emulator.report.event_text import describe
from emulator.report.text import printable, shown_line
from tests.conftest import Emulate, own
from tests.histories import an_event
from tests.terminals import Terminal


@pytest.mark.parametrize(
    ("printed", "shown"),
    [
        ("\x1b[1;31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07text", "text"),
        ("a\x00b\x08c\rd", "abcd"),
        ("lone \ud800 surrogate", "lone  surrogate"),
        ("tab\tand\nline", "tab\tand\nline"),
        ("füße 步", "füße 步"),
    ],
)
def test_what_is_no_character_to_look_at_is_left_out(printed: str, shown: str) -> None:
    assert printable(printed) == shown


@pytest.mark.parametrize(
    ("printed", "shown"),
    [
        ("step 12 of 400, loss 0.41 ▄▆", "step 12 of 400, loss 0.41 ▄▆"),
        ("plain", "plain"),
        ("a\tb", "a\tb"),
        ("1/9\r2/9\r", "2/9"),
        ("1/9\b\b\b2/9", "2/9"),
        ("\x1b[31mred\x1b[0m", "\x1b[31mred\x1b[0m\x1b[0m"),
        ("\x1b[2J\x1b[3;4Hx\x1b[K", "x\x1b[0m"),
        ("\x1b]0;title\x07x", "x\x1b[0m"),
        ("\x1b]8;;http://a\x1b\\x", "x\x1b[0m"),
        ("\x1b7\x1b8\x1bMx", "x\x1b[0m"),
        ("bell\x07\x00\x9b2J", "bell2J"),
        ("\x1b", "\x1b[0m"),
        ("torn \x1b[3", "torn \x1b[0m"),
        ("\x1b(0lqk", "lqk\x1b[0m"),
        ("", ""),
    ],
)
def test_what_moves_the_cursor_is_left_out(printed: str, shown: str) -> None:
    assert shown_line(printed) == shown


@pytest.mark.parametrize(
    ("event", "fields", "words"),
    [
        ("step", {"step": 1}, ""),
        ("phase", {}, ""),
        ("step-source", {"source": "a bar", "counts": True}, "steps of w-0 are read from a bar"),
        ("step-source", {"source": "a bar", "counts": False}, ""),
        ("unread", {"line": "odd 7"}, "warning: the pattern of `metrics.steps` has matched nothing"
                                      " yet: a line is `odd 7`"),
        ("step-source", {"source": "a bar", "counts": True, "retracts": True},
         "steps of w-0 are read from a bar; the steps before were something else"),
        ("before-training", {}, "all tasks before training are running"),
        ("training", {}, "the tasks before training have succeeded; starting the others"),
        ("attached", {"gap": 2.0}, "taken over after 2.00s without an emulator"),
        ("exit", {"exit_code": 3}, "w-0 ended with exit code 3"),
        ("exit", {"exit_code": 3, "told_to_stop": True}, ""),
        ("exit", {"exit_code": 137, "oom_killed": True, "reason": "OOMKilled"},
         "w-0 ended with exit code 137 (out of memory)"),
        ("restart", {"scope": "task", "number": 2, "delay": 1.0},
         "restarting w-0 in 1.00s (number 2)"),
        ("restart", {"scope": "job", "number": 1, "delay": 4.0},
         "restarting every task in 4.00s (number 1)"),
        ("stop", {"signal": "SIGKILL"}, "w-0 did not exit: SIGKILL"),
        ("stop", {"signal": "SIGTERM"}, ""),
        ("refused", {"operation": "a signal", "reason": "no"},
         "the engine refused a signal for w-0: no"),
        ("stall", {"seconds": 60.0}, "w-0 made no step for 1m 00s: SIGKILL"),
        ("port", {"port": 80, "address": "a:81"}, "port 80 of w-0 is at a:81"),
        ("engine-note", {"reason": "Started"}, ""),
        ("engine-note", {"reason": "Odd", "message": "hm"}, "the cluster: w-0: Odd: hm"),
        ("helper", {"stage": "starting"}, ""),
        ("helper", {"stage": "failed", "reason": "why"},
         "helper w-0 failed, which does not decide the job: why"),
        ("helper", {"stage": "ended", "exit_code": 0},
         "helper w-0 ended by itself with exit code 0"),
        ("helper", {"stage": "ended", "exit_code": 1, "told_to_stop": True}, ""),
        ("helper", {"stage": "ended", "exit_code": 1, "last_words": ["a", "b"]},
         "helper w-0 ended by itself with exit code 1, which does not decide the job; its last "
         "output: a; b"),
        ("helper", {"stage": "stopping", "signal": "SIGTERM"}, ""),
        ("helper", {"stage": "stopping", "signal": "SIGKILL"}, "helper w-0 did not exit: SIGKILL"),
        ("fault", {"stage": "planned"}, ""),
        ("fault", {"stage": "preparing", "reason": "a save"}, "fault 0: waiting: a save"),
        ("fault", {"target": "a | b"}, "fault 0: preempt a | b"),
        ("fault", {"stage": "applied", "silent": True, "exit_code": 137},
         "fault 0: w-0 has lost power (exit code 137)"),
        ("fault", {"stage": "applied", "exit_code": 143, "effect": "cordoned"},
         "fault 0: w-0 has exited (by itself, exit code 143); cordoned"),
        ("fault", {"stage": "applied", "exit_code": 137, "killed": True},
         "fault 0: w-0 has exited (killed, exit code 137)"),
        ("fault", {"stage": "applied", "kind": "pause", "effect": "e"},
         "fault 0: w-0 is frozen; e"),
        ("fault", {"stage": "reapplied", "kind": "pause"}, "fault 0: w-0 is frozen again"),
        ("fault", {"stage": "healed", "kind": "pause"}, "fault 0: w-0 is back"),
        ("fault", {"stage": "skipped", "reason": "gone"}, "fault 0: skipped: gone"),
        ("fault", {"stage": "failed"}, "fault 0: failed: "),
        ("prepared", {}, ""),
    ],
)  # fmt: skip
def test_every_kind_of_event_has_its_words_or_none(
    event: str, fields: dict[str, Any], words: str
) -> None:
    assert describe(an_event(event, "w-0", **fields)) == words


# --- What a program prints, on a real terminal ----------------------------------------------------

HOSTILE = (
    r"\033]52;c;aGVsbG8=\007clipboard\n"
    r"\033]0;evil\007title\n"
    r"\033[2J\033[Hclear\n"
    r"\033[31mcolour\033[0m\n"
    r"\302\233\063\061mC1\n"
    r'{"emulate": "step", "step": 9223372036854775807, "accuracy": 1e308}\n'
)
"""What printf turns into escape sequences, and a number of 309 digits."""
SHOWN = ("clipboard", "title", "clear", "colour")
CLIPBOARD_TITLE_AND_CURSOR = (b"\x1b]", b"\x1b[2J", b"\x1b[H", b"\xc2\x9b")


@pytest.fixture
def hostile(emulate: Emulate, tmp_path: Path) -> list[str]:
    """Return the arguments that run a program with hostile output."""
    scenario = {
        **{"name": "hostile", "framework": "none", "image": "none", "cluster": {"worker": 1}},
        "program": {"command": ["sh", "-c", f"printf '%b' '{HOSTILE}'"]},
        "expect": {"accuracy": 0.5, "final_step": 1},
    }
    path = tmp_path / "hostile.yaml"
    path.write_text(json.dumps(scenario))
    return [str(path), "--engine=process", f"--out={emulate.out}", f"--run-id={own('hostile')}"]


def on_a_terminal(*command: str, code: int = 0) -> Terminal:
    with contextlib.closing(Terminal(command, columns=120)) as terminal:
        assert terminal.finish() == code, terminal.all
    return terminal


@pytest.mark.parametrize("how", [["--plain"], []])
def test_escapes_of_a_program_do_not_reach_the_terminal_nor_numbers_of_309_digits(
    emulate: Emulate, hostile: list[str], how: list[str]
) -> None:
    # 3, unknown: such an accuracy can't be judged.
    up = on_a_terminal(*emulate.command, "up", *hostile, *how, code=3)
    run = own("hostile")
    logs = on_a_terminal(*emulate.command, "logs", run, f"--out={emulate.out}")
    for terminal in [up, logs]:
        own_escapes = () if terminal is logs or how else (b"\x1b[2J", b"\x1b[H")  # of the panel
        for sequence in CLIPBOARD_TITLE_AND_CURSOR:
            assert sequence not in terminal.raw or sequence in own_escapes
        assert all(text in terminal.all for text in SHOWN)
        assert b"\x1b[31mcolour" in terminal.raw
    folder = emulate.out / run
    kept = (folder / "logs" / "worker-0.log").read_bytes()
    assert b"\x1b]52;c;aGVsbG8=\x07clipboard\n" in kept
    assert "accuracy 1e+308" in up.all
    page = re.sub(r"<script.*?</script>", "", (folder / "report.html").read_text(), flags=re.DOTALL)
    assert "1e+308" in page
    texts = [up.all, page, *((folder / name).read_text() for name in ("report.md", "junit.xml"))]
    assert not [found for text in texts for found in re.findall(r"\d{30,}", text)]
