"""`ui`: the runs of a folder in the browser."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Annotated

import typer

from emulator.cli.options import Out, note
from emulator.errors import UsageError
from emulator.runtime import signals
from emulator.runtime.waiting import for_event, result_of, start


def ui(
    out: Out = Path("runs"),
    port: Annotated[
        int, typer.Option("--port", metavar="PORT", help="Of 127.0.0.1; 0: any that is free.")
    ] = 0,
    open_: Annotated[bool, typer.Option("--open", help="Show it in the browser.")] = False,
    child: Annotated[bool, typer.Option("--until-stdin-ends", hidden=True)] = False,
    run: Annotated[str | None, typer.Option("--of-run", hidden=True)] = None,
) -> None:
    """Show the runs of a folder in the browser.

    List, pages, comparison, history; start runs.

    It serves on 127.0.0.1, for you alone, until Ctrl-C. The address that it prints has a token.
    """
    from emulator.runtime.files import FOR_OWNER
    from emulator.ui.server import UiServer
    from emulator.ui.site import Site

    if out.exists() and not out.is_dir():
        raise UsageError(f"{out} is no folder of runs: it is a file.", "--out names a folder.")
    out.mkdir(FOR_OWNER, parents=True, exist_ok=True)
    expected = frozenset() if run is None else frozenset({run})
    server = UiServer(Site(out, _launch, expected), port, page=f"/runs/{run}/" if run else "/")
    with signals.deferred() as deferral:
        deferral.hand_to(lambda number: server.stop())
        server.start()
        typer.echo(server.url)
        sys.stdout.flush()  # it is waited for, also through a pipe
        if open_:
            _open(server.url)
        if child:
            start(lambda: _at_the_end_of_stdin(server.stop))
        for_event(server.ended)


def _launch(arguments: Sequence[str], run_id: str, say: Callable[[str], None]) -> int:
    """Run `emulate` with these arguments, and pass on what it says; return its exit code."""
    with subprocess.Popen(
        [sys.executable, "-m", "emulator", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        errors="replace",  # as text
        start_new_session=True,  # the run stays when this server is interrupted
    ) as process:
        assert process.stderr is not None
        for line in process.stderr:
            say(line.rstrip("\n").removeprefix("emulate: "))
    return process.returncode


def _at_the_end_of_stdin(stop: Callable[[], None]) -> None:
    while os.read(sys.stdin.fileno(), 1024):
        pass
    stop()


def _open(address: str) -> None:
    """Show a page in the browser; the address, which has the token, is in no command line."""
    import tempfile
    import webbrowser
    from html import escape

    with tempfile.NamedTemporaryFile(
        "w", prefix="emulate-", suffix=".html", delete=False
    ) as file:  # for its owner only
        file.write(f'<meta http-equiv="refresh" content="0;url={escape(address)}">\n')
    if not webbrowser.open(Path(file.name).as_uri()):
        note("no browser is to be found here; open the address by hand")


@contextlib.contextmanager
def beside(out: Path, run_id: str) -> Iterator[None]:
    """Serve the pages of a folder of runs, by a process of their own, for the time of the block."""
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "emulator", "ui", "--until-stdin-ends"),
            *(f"--out={out}", f"--of-run={run_id}"),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        errors="replace",  # as text
        start_new_session=True,  # Ctrl-C is the run's
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        # Before the live view, which nothing else may write into; without one, it has said why.
        if address := result_of(process.stdout.readline).strip():
            note(f"in the browser: {address}")
        yield
    finally:
        process.stdin.close()  # the kernel does so if this process is killed
        result_of(process.wait)
        process.stdout.close()
