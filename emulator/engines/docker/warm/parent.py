"""The parent of a warm task: it has imported what takes long, and forks the task (PID 1).

It runs inside of a task's container, with that image's Python and nothing else: this file is copied
there and imports only the standard library. It does what an init does, as `tini` does for a cold
task: it passes signals on to the task, collects processes that have lost their parent, and kills
what remains when the task has ended.

    python3 [options] parent.py SETTINGS PADDING      SETTINGS is JSON:
    {"preload": ["tensorflow"], "options": ["-u"], "idle": 600.0, "mark": "..."}

Requests come as a file, REQUEST, and a signal, WAKE. {"id": "1", "argv": [...], "env": {...}} forks
a task; {"id": "2", "reset": [paths], "empty": [folders]} removes these paths, and what is in the
folders. Each is answered on stdout and stderr by a line that begins with `mark`:
{"request": "1", "stream": 1, "exit": 0, "oom": false}. A task's last line may lack its newline, so
the mark may stand in the middle of a line.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import importlib.machinery
import json
import os
import runpy
import shutil
import signal
import sys
import threading
import types
import zipfile

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

FOLDER = "/.emulator"
REQUEST = FOLDER + "/request.json"
WAKE = signal.SIGRTMIN + 7
PADDING = 4096
"""Bytes of the last argument: room in which the task's own arguments are written."""
OOM_COUNTERS = (
    ("/sys/fs/cgroup/memory/memory.oom_control", "oom_kill "),  # version 1
    ("/sys/fs/cgroup/memory.events", "oom_kill "),
)


def serve(settings: dict[str, Any]) -> dict[str, Any]:
    """Preload, then serve requests; return the one of a task in the child that is to run it."""
    # Before the imports: their threads inherit it, and no signal is lost or acted upon meanwhile.
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    for name in settings["preload"]:
        with contextlib.suppress(ImportError):  # a default that this image lacks
            importlib.import_module(name)
    gc.collect()
    gc.freeze()  # a collection in the task need not touch, and so copy, what the parent has made
    if os.path.exists(REQUEST):
        os.kill(os.getpid(), WAKE)  # it came before this process could wait for it
    early = []
    while True:
        came = signal.sigtimedwait(signal.valid_signals(), settings["idle"])
        if came is None:
            sys.exit(0)  # it was not needed for long
        if came.si_signo != WAKE:
            if os.path.exists(REQUEST):  # it is for the task that is about to start
                early.append(came.si_signo)
            continue
        request = take_request()
        if request is None:
            continue
        if "reset" in request:
            kill_all()
            answer(settings, request, {"left": reset(request)})
            continue
        before = oom_kills()
        child = os.fork()
        if child == 0:
            return request
        for number in early:
            os.kill(child, number)
        early.clear()
        status = init(child)
        kill_all()
        empty("/dev/shm")
        answer(settings, request, {"exit": status, "oom": oom_kills() > before})


def take_request() -> dict[str, Any] | None:
    """Return the request, and remove it; None if there is none, or not yet the whole of it."""
    try:
        with open(REQUEST) as file:
            request: dict[str, Any] = json.load(file)
        os.unlink(REQUEST)
        return request
    except (OSError, ValueError):  # it may be being written: its signal is still to come
        return None


def init(child: int) -> int:
    """Pass signals on to the child until it has ended; return its exit code as a shell does."""
    waited = signal.valid_signals() - {WAKE}
    while True:
        number = signal.sigwait(waited)
        if number != signal.SIGCHLD:
            with contextlib.suppress(OSError):
                os.kill(child, number)
            continue
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if pid == 0:
                break
            if pid == child:
                code = os.waitstatus_to_exitcode(status)
                return code if code >= 0 else 128 - code


def kill_all() -> None:
    """Kill every other process of the container, and collect them all."""
    with contextlib.suppress(OSError):
        os.kill(-1, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):
        while True:
            os.waitpid(-1, 0)


def reset(request: dict[str, Any]) -> int:
    """Remove what earlier tasks have left; return how much of it is still there."""
    for path in request["reset"]:
        remove(path)
    empty("/dev/shm")
    left = sum(os.path.lexists(path) for path in request["reset"])
    for folder in request["empty"]:
        empty(folder)
        left += len(os.listdir(folder))
    return left


def empty(folder: str) -> None:
    """Remove what is in a folder."""
    with contextlib.suppress(OSError):
        for name in os.listdir(folder):
            remove(os.path.join(folder, name))


def remove(path: str) -> None:
    """Remove a file or folder, never following a link."""
    with contextlib.suppress(OSError):
        if not os.path.isdir(path) or os.path.islink(path):
            os.unlink(path)
            return
        for folder, _, _ in os.walk(path):  # from the top down, so that each can be looked into
            os.chmod(folder, 0o700)
        shutil.rmtree(path, ignore_errors=True)


def answer(settings: dict[str, Any], request: dict[str, Any], value: dict[str, Any]) -> None:
    """Print it on both streams, so that each is known to have been read to here.

    Twice: where the task's last line is too long, a reader cuts it, with all that follows in it.
    """
    for stream in (1, 2):
        value.update(request=request["id"], stream=stream)
        line = (settings["mark"] + json.dumps(value) + "\n").encode()
        for _ in range(2):
            os.write(stream, line)


def oom_kills() -> int:
    """Return how many processes of this container the kernel has killed for their memory."""
    for path, key in OOM_COUNTERS:
        with contextlib.suppress(OSError), open(path) as file:
            return sum(int(line[len(key) :]) for line in file if line.startswith(key))
    return 0


# --- In the task --------------------------------------------------------------------------------


def become(argv: list[str], env: dict[str, str]) -> None:
    """Make this process what `argv` would find at its start, with `env` beside its environment."""
    os.setpgid(0, 0)  # as tini does
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    os.environ.update(env)
    gc.unfreeze()
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed()  # else each task of this parent draws the same numbers
    show(argv)


def show(argv: list[str]) -> None:
    """Write the arguments where the kernel reads /proc/PID/cmdline, over those of the parent."""
    import ctypes

    with open("/proc/self/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    start, end = int(fields[45]), int(fields[46])  # arg_start, arg_end: proc(5), fields 48 and 49
    text = b"\0".join(os.fsencode(one) for one in argv) + b"\0"
    if len(text) <= end - start:
        ctypes.memmove(start, text.ljust(end - start, b"\0"), end - start)


def split(argv: list[str], options: list[str]) -> tuple[str, str, list[str]] | None:
    """Split a command at its program: ("-m", "pkg"), ("-c", code), ("", path); None: not Python's.

    `options` are the interpreter's own, which the parent was started with.
    """
    rest = argv[1 + len(options) :]
    if not rest or argv[1 : 1 + len(options)] != options:
        return None
    if rest[0] in ("-m", "-c"):
        return (rest[0], rest[1], rest[2:]) if len(rest) > 1 else None
    if rest[0].startswith("-"):
        return None
    return "", rest[0], rest[1:]


def run(argv: list[str], options: list[str]) -> None:
    """Run the task's program as `__main__`, as the interpreter does it at its start."""
    as_main = runpy._run_module_as_main  # type: ignore[attr-defined]
    how = split(argv, options)
    if how is None or (how[0] == "" and not os.path.exists(how[1])):
        os.execvpe(argv[0], argv, os.environ)  # which reports what is missing
    kind, program, arguments = how
    main: Any = types.ModuleType("__main__")
    main.__dict__.update(__builtins__=__builtins__, __annotations__={})
    sys.modules["__main__"] = main
    sys.argv = [kind or program, *arguments]
    if hasattr(sys, "orig_argv"):
        sys.orig_argv = list(argv)
    importlib.invalidate_caches()  # the program's files came after this process had looked
    if not (sys.flags.isolated or getattr(sys.flags, "safe_path", False)):
        sys.path.insert(0, first_path(kind, program))
    if kind == "-m":
        as_main(program)
    elif kind == "-c":
        main.__loader__ = importlib.machinery.BuiltinImporter
        exec(compile(program, "<string>", "exec", dont_inherit=True), main.__dict__)
    elif os.path.isdir(program) or zipfile.is_zipfile(program):
        as_main("__main__", False)
    else:
        path = os.path.abspath(program)
        main.__file__, main.__cached__ = path, None
        main.__loader__ = importlib.machinery.SourceFileLoader("__main__", path)
        with open(path, "rb") as file:
            code = compile(file.read(), path, "exec", dont_inherit=True)
        exec(code, main.__dict__)


def first_path(kind: str, program: str) -> str:
    """Return the first entry of sys.path (Python docs, sys.path)."""
    if kind == "-m":
        return os.getcwd()
    if kind == "-c":
        return ""
    real = os.path.realpath(program)
    return real if os.path.isdir(real) or zipfile.is_zipfile(real) else os.path.dirname(real)


def report(error: BaseException) -> None:
    """Print an exception of the program without the frames of this file; end with its status."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    error.__traceback__ = trace
    sys.excepthook(type(error), error, trace)
    if isinstance(error, KeyboardInterrupt):  # ends by the signal, as Python does
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    sys.exit(1)


def main() -> None:
    """Serve; then, in the child, be the task."""
    if os.getpid() != 1:
        sys.exit("This is the init of a container: elsewhere it would kill every process.")
    if sys.path and os.path.realpath(sys.path[0]) == FOLDER:
        del sys.path[0]
    settings = json.loads(sys.argv[1])
    request = serve(settings)
    become(request["argv"], request["env"])
    try:
        run(request["argv"], settings["options"])
    except SystemExit:
        raise
    except BaseException as error:
        report(error)


if __name__ == "__main__":
    main()
