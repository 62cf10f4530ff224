"""What no restart heals, by what a program has printed last."""

from __future__ import annotations

import pytest

from emulator.analysis.incurable import incurable

TRACE = ["Traceback (most recent call last):", '  File "/job/train.py", line 1, in <module>']
NO_TORCH = "ModuleNotFoundError: No module named 'torch'"
FRAMES = ["    import torch", NO_TORCH]
LAUNCHER = [
    "W1122 11:43:37.338000 7 torch/distributed/run.py:900] closing signal SIGTERM",
    "E1122 11:43:37.338000 7 torch/distributed/elastic/api.py:1002] failed (exitcode: 1)",
    "Traceback (most recent call last):",
    '  File "/opt/venv/bin/torchrun", line 8, in <module>',
    "    sys.exit(main())",
    "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ",
    "============================================================",
    "train.py FAILED",
]
SYNTAX = ['  File "/job/train.py", line 3', "    x = (", "        ^", "SyntaxError: '(' was never"]


@pytest.mark.parametrize(
    ("output", "exit_code", "what"),
    [
        (["step 1", *TRACE, *FRAMES], 1, NO_TORCH),
        ([*TRACE, *FRAMES, "", "  "], 1, NO_TORCH),
        ([f"[rank0]: {line}" for line in (*TRACE, *FRAMES)], 1, NO_TORCH),
        ([*TRACE, *FRAMES, *LAUNCHER], 1, NO_TORCH),
        (SYNTAX, 1, SYNTAX[-1]),
        ([*TRACE, "    import other", *SYNTAX], 1, SYNTAX[-1]),
        (["/usr/bin/python3: No module named train"], 1, "/usr/bin/python3: No module named train"),
        (
            ["python: can't open file '/job/trian.py': [Errno 2] No such file or directory"],
            2,
            "python: can't open file '/job/trian.py': [Errno 2] No such file or directory",
        ),
        (["sh: 1: trian: not found"], 127, "sh: 1: trian: not found"),
        (["bash: line 1: a: command not found"], 127, "bash: line 1: a: command not found"),
        (
            ["bash: run.sh: No such file or directory"],
            127,
            "bash: run.sh: No such file or directory",
        ),
        (["sh: 0: cannot open run.sh: No such file"], 2, "sh: 0: cannot open run.sh: No such file"),
    ],
)
def test_what_each_start_would_die_of(output: list[str], exit_code: int, what: str) -> None:
    assert incurable(output, exit_code) == what


@pytest.mark.parametrize(
    ("output", "exit_code"),
    [
        ([], 1),
        ([*TRACE, *FRAMES], 0),
        ([*TRACE, *FRAMES], 137),
        ([*TRACE, "    step()", "ValueError: bad shard 3"], 1),
        # The program has caught it, and goes on.
        ([*TRACE, *FRAMES, "training without it", "connection refused"], 1),
        ([f"warning: {NO_TORCH}"], 1),
        # Another file than one of its own may be there later.
        ([*TRACE, "    open(path)", "FileNotFoundError: [Errno 2] No such file: '/shared/a'"], 1),
        (["Is the server there? not found"], 1),
        # Of data, which another task may be writing.
        ([*TRACE, "    eval(text)", '  File "<string>", line 1', "SyntaxError: invalid syntax"], 1),
        (["SyntaxError: in the answer of the server"], 1),
        (LAUNCHER, 1),
    ],
)
def test_what_may_heal(output: list[str], exit_code: int) -> None:
    assert incurable(output, exit_code) == ""
