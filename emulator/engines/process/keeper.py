"""The keeper of a task: a small process between the process engine and the task.

It starts the task in a session of its own, waits for it, and then kills all processes that the task
has left behind. On Linux it is a "subreaper": a process whose parent has ended becomes the keeper's
child, even a daemon that has left its session and cleared its environment. So nothing that the task
starts is lost, and after a supervisor was killed all of it is found as a descendant of the keeper,
whose own environment has the run id and can't be changed by the task. Without subreapers (macOS)
only the task's process group is killed.

This file is run by its path and imports nothing of the emulator: a start costs about 20 ms of CPU
and 9 MB. Arguments: the descriptor to report on; the one for what outlives the task; the run id and
the task, for users who read the process table. It reads the command and the environment from stdin,
see `order`. It reports the task's pid, and the error number of a command that can't be run. The
exit code is the task's, 128 + N for signal N.

After SIGUSR1 the end of the task is watched: the processes that it has left get LINGER to end by
themselves, before they are killed, and are reported as JSON, see `left_of`. Not so where another
signal than SIGKILL has ended the task.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any

LINGER = 5.0
"""Seconds in which a process may end by itself after the main one: a pipe's reader, or Python's
tracker of shared memory, needs some milliseconds for it, and longer on a busy machine."""
LOOK = 0.02
"""Seconds between two looks at what is left."""
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER, PR_GET_CHILD_SUBREAPER = 1, 36, 37


def order(command: Sequence[str], environment: Mapping[str, str]) -> bytes:
    """Return what a keeper reads from stdin: two counts, so many arguments, so many variables.

    A supervisor may be killed while it writes: the counts show whether the order is complete.
    """
    variables = [f"{name}={value}" for name, value in environment.items()]
    words = [str(len(command)), str(len(variables)), *command, *variables, ""]
    return b"\0".join(map(os.fsencode, words))


def read_order(text: bytes) -> tuple[list[bytes], dict[bytes, bytes]] | None:
    """Return the command and the environment; None where the order is incomplete."""
    first, second, *words = [*text.split(b"\0"), b"", b""]
    if not (first.isdigit() and second.isdigit()):
        return None
    arguments, variables = int(first), int(second)
    if len(words) != arguments + variables + 3:
        return None
    pairs = (word.partition(b"=") for word in words[arguments : arguments + variables])
    return words[:arguments], {name: value for name, _, value in pairs}


def pid_or_error(report: bytes) -> tuple[int | None, int | None]:
    """Return a keeper's report: the task's pid, and the error number of its command."""
    numbers = [int(number) for number in report.split()]
    return (numbers[0] if numbers else None), (numbers[1] if len(numbers) > 1 else None)


def adopts() -> bool:
    """Say whether daemons that have left their session become children of a keeper here."""
    return _prctl(PR_GET_CHILD_SUBREAPER)


def _prctl(option: int, value: int | None = None) -> bool:
    """Set an attribute of this process, without a value read it; return whether that worked."""
    if sys.platform != "linux":
        return False
    try:
        import ctypes

        argument = ctypes.byref(ctypes.c_int()) if value is None else ctypes.c_ulong(value)
        result: int = ctypes.CDLL(None).prctl(option, argument, *(ctypes.c_ulong(0),) * 3)
    except (ImportError, OSError, AttributeError):
        return False
    return result == 0


def left_of(report: bytes) -> tuple[float, list[dict[str, Any]]] | None:
    """Return when a watched task ended (seconds since 1970), and what has outlived it.

    Of each process its `pid` and `name`, for how many `seconds` it did, and `how` it went: `ended`
    by itself, `killed` by SIGKILL, `left` until it was killed by the keeper. None: not watched.
    """
    if not report:
        return None
    import json

    found = json.loads(report)
    return found["ended"], found["outlived"]


_watched = False


def _watch(*_: object) -> None:
    global _watched
    _watched = True


def main() -> None:
    """Start the task, wait for its end, kill what it has left; exit as it did."""
    report, left = int(sys.argv[1]), int(sys.argv[2])
    ordered = read_order(sys.stdin.buffer.read())
    if ordered is None:
        sys.exit("the order on stdin was incomplete")
    adopting = _prctl(PR_SET_CHILD_SUBREAPER, 1)
    for descriptor in (report, left):
        os.set_inheritable(descriptor, False)  # the task's program must not have it
    signal.signal(signal.SIGUSR1, _watch)
    # The keeper ends after its task, also where the task's first act is to signal it.
    ends = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    inherited = {number: signal.signal(number, signal.SIG_IGN) for number in ends}
    ignored = {number for number, handler in inherited.items() if handler == signal.SIG_IGN}
    keeper = os.getpid()
    task = os.fork()
    if task == 0:
        _become(keeper, report, inherited.keys() - ignored, *ordered)
    os.close(report)
    os.chdir("/")
    status = _wait_for(task, left if adopting else None)
    if adopting:
        _kill_children()
    os._exit(os.WTERMSIG(status) + 128 if os.WIFSIGNALED(status) else os.WEXITSTATUS(status))


def _become(
    keeper: int,
    report: int,
    ends: Set[signal.Signals],
    command: list[bytes],
    environment: dict[bytes, bytes],
) -> None:
    """Replace this process, a child of the keeper, by the task, which the signals `ends` end."""
    try:
        os.setsid()
        _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != keeper:
            os._exit(127)  # the keeper was killed before the attribute was set
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.close(null)
        for number in (*ends, signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores the last two
            signal.signal(number, signal.SIG_DFL)
        os.write(report, b"%d\n" % os.getpid())
        os.execve(command[0], command, environment)
    except OSError as error:
        os.write(report, b"%d\n" % (error.errno or 0))
    finally:
        os._exit(127)


def _wait_for(task: int, left: int | None) -> int:
    """Wait for the task's end, kill its process group, return its status.

    Meanwhile other children that end are reaped, as by an init. What outlives a task that is
    watched is written to the descriptor `left`.
    """
    if sys.platform == "linux":
        # It stays a zombie until its group is killed: the group's number can't be another's.
        while (ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)) and ended.si_pid != task:
            os.waitpid(ended.si_pid, 0)
        # The first signal that ends the task ends all of it at once, as in a container.
        at_once = ended and ended.si_code != os.CLD_EXITED and ended.si_status != signal.SIGKILL
        if _watched and left is not None and not at_once:
            _report_left(task, left)
        _kill_group(task)
        return os.waitpid(task, 0)[1]
    status = os.waitpid(task, 0)[1]
    _kill_group(task)
    return status


def _report_left(task: int, report: int) -> None:
    """Give what the task has left some time to end, and report it."""
    import json

    now, began = time.time(), time.monotonic()
    running = _descendants(task)
    outlived = {one: {"pid": one[0], "name": name} for one, name in running.items()}
    while True:
        seconds = round(time.monotonic() - began, 3)
        found = _descendants(task)
        for one in running.keys() - found.keys():
            outlived[one] |= {"seconds": seconds, "how": _how(one[0])}
        for one in found.keys() - outlived.keys():
            outlived[one] = {"pid": one[0], "name": found[one]}
        running = found
        if not running or seconds >= LINGER:
            break
        time.sleep(LOOK)
    for one in running:
        outlived[one] |= {"seconds": seconds, "how": "left"}
    text = json.dumps({"ended": now, "outlived": list(outlived.values())[:MOST_LEFT]})
    with contextlib.suppress(OSError):  # nobody reads it any more
        os.write(report, text.encode())


MOST_LEFT = 200
"""Processes of a report: it has room in a pipe that nobody reads yet."""


def _how(pid: int) -> str:
    """Say how a process went that is not there any more."""
    try:
        ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG)
    except ChildProcessError:  # its parent has waited for it
        return "ended"
    by_kill = ended and ended.si_code == os.CLD_KILLED and ended.si_status == signal.SIGKILL
    return "killed" if by_kill else "ended"


def _descendants(task: int) -> dict[tuple[int, int], str]:
    """Return the names of this process's descendants that run, without the task.

    By pid and start time: a number may be used again.
    """
    found: dict[int, tuple[int, tuple[int, int], str]] = {}
    for name in os.listdir("/proc"):
        if name.isdecimal():
            with contextlib.suppress(OSError), open(f"/proc/{name}/stat", "rb") as file:
                # The command's name is in brackets, and may contain anything.
                head, _, rest = file.read().rpartition(b")")
                fields = rest.split()  # its state, its parent, ..., when it started
                if fields[0] not in (b"Z", b"X"):
                    called = head.partition(b"(")[2].decode("utf-8", "replace")
                    found[int(name)] = int(fields[1]), (int(name), int(fields[19])), called
    below, me = dict[tuple[int, int], str](), os.getpid()
    for pid, (parent, one, called) in found.items():
        above = {pid}
        while parent != me and parent in found and parent not in above:
            above.add(parent)
            parent = found[parent][0]
        if parent == me and pid != task:
            below[one] = called
    return below


def _kill_group(task: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(task, signal.SIGKILL)


def _kill_children() -> None:
    """Kill all children, also those that become children meanwhile, until none is left.

    Processes of another user can't be killed, and are not waited for.
    """
    while True:
        try:
            if os.waitpid(-1, os.WNOHANG)[0]:
                continue
        except ChildProcessError:
            return
        children = list(_children())
        killed = sum(_kill(child) for child in children)
        if killed:
            os.waitpid(-1, 0)
        elif children:
            return


def _kill(pid: int) -> bool:
    try:
        os.kill(pid, signal.SIGKILL)
    except PermissionError:
        return False
    except ProcessLookupError:
        pass
    return True


def _children() -> Iterable[int]:
    """Yield this process's children; not every kernel has a list of them."""
    parent = str(os.getpid()).encode()
    for name in os.listdir("/proc"):
        if name.isdecimal():
            with contextlib.suppress(OSError), open(f"/proc/{name}/stat", "rb") as file:
                # After the command's name, which may contain anything: its state, its parent.
                if file.read().rpartition(b")")[2].split()[1] == parent:
                    yield int(name)


if __name__ == "__main__":
    main()
