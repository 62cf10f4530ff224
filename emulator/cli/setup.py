"""`build`, `doctor`, `schema`, `init`, `version`: before the first run."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import platform
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import emulator
from emulator.cli.options import (
    STDIN,
    Framework,
    Sets,
    check_verbosity,
    complete_scenarios,
    console,
    note,
    print_json,
    read,
)
from emulator.engines import names
from emulator.errors import EmulatorError, UsageError
from emulator.runtime.bundled import ROOT, scenario_path
from emulator.runtime.files import FULL, MAKE_ROOM, atomic_write

if TYPE_CHECKING:
    from emulator.engines.docker.images import Images
    from emulator.report.live import LivePrinter
    from emulator.scenario.schema import AnyImage, Scenario

REQUIREMENTS = Path("requirements-emulator.txt")
_STARTERS = ROOT / "images" / "starters"


def _complete_images() -> list[str]:
    from emulator.engines.kit.recipes import KINDS

    return [*KINDS, "all", *map(str, Path().glob("*.yaml"))]


def build(
    kind: Annotated[
        str,
        typer.Argument(
            metavar="IMAGE",
            help="cpu, gpu, pytorch, jax, python, network, emulator or all; or a scenario: its "
            "images.",
            autocompletion=_complete_images,
        ),
    ] = "cpu",
    base: Annotated[
        str | None,
        typer.Option(
            help="The image to build on [default: python:3.11-slim]", envvar="EMULATOR_BASE"
        ),
    ] = None,
    ca_bundle: Annotated[
        Path | None,
        typer.Option(
            help="Certificates, where the network intercepts TLS [default: SSL_CERT_FILE]"
        ),
    ] = None,
    wheels: Annotated[
        Path | None,
        typer.Option(help="A folder of wheels to install from [default: PIP_FIND_LINKS]"),
    ] = None,
    push: Annotated[
        str | None,
        typer.Option(
            metavar="REGISTRY", help="Push them there as well, such as localhost:5000/team."
        ),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Only the names of images.")] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="All that the builds print.")
    ] = False,
) -> None:
    """Build the images that scenarios run in. One that is up to date is left alone."""
    from emulator.engines.docker.connection import connect
    from emulator.engines.docker.images import BuildOptions, Images
    from emulator.report.live import LivePrinter

    check_verbosity(quiet, verbose)
    registry = _registry(push)
    wanted = _images(kind)
    options = BuildOptions.from_environment(base, ca_bundle, wheels)
    with LivePrinter(verbose=verbose) as shown:
        _build(Images(connect(), options), wanted, registry, shown, quiet=quiet)
    if registry:
        from emulator.scenario.sections import SECTIONS

        for name in (name for name, kind in SECTIONS.items() if "registry" in kind.model_fields):
            note(f"`--set {name}.registry={registry}` has a cluster's nodes pull from there")


def _build(
    images: Images,
    wanted: Sequence[AnyImage],
    registry: str | None,
    shown: LivePrinter,
    *,
    quiet: bool,
) -> None:
    from emulator.engines.docker.building import push
    from emulator.engines.kit.recipes import KINDS, stable_tag
    from emulator.validation.units import format_duration

    def say(text: str) -> None:
        if not quiet:
            shown.callbacks().say(text)

    for one in wanted:
        began = time.monotonic()
        kind_of_it = one if isinstance(one, str) and one in KINDS else ""
        tag = images.build(kind_of_it, say) if kind_of_it else images.ensure(one, say)
        shown.close()
        took = format_duration(time.monotonic() - began)
        also = f", also as {stable_tag(kind_of_it)}" if kind_of_it else ""
        note(f"{tag} is ready after {took}{also}")
        if registry:
            name, digest = push(images.api, tag, registry, say)
            note(f"{name} is pushed, with the digest {digest}")


def _images(kind: str) -> Sequence[AnyImage]:
    """Return what is to be built: one of the kinds, all, or those of a scenario."""
    from emulator.engines.kit.recipes import KINDS, is_built

    if kind in KINDS:
        return [kind]
    if kind == "all":
        return KINDS
    path = Path(kind)
    is_scenario = path == STDIN or path.suffix in (".yaml", ".yml") or scenario_path(path).is_file()
    if not is_scenario:
        from emulator.validation.similar import suggestion

        hint = suggestion(kind, (*KINDS, "all"), "Images")
        raise UsageError(f"There is no image {kind}.", f"{hint} Or name a scenario.")
    found: list[AnyImage] = []
    for image in read(path).parse().images:
        if is_built(image) and image not in found:
            found.append(image)
    return found


def _registry(text: str | None) -> str | None:
    from emulator.scenario.image import registry_name

    try:
        return registry_name(text) if text is not None else None
    except ValueError as error:
        raise UsageError(f"--push: {error}.") from None


def doctor(
    scenario: Annotated[
        Path | None,
        typer.Argument(
            metavar="SCENARIO",
            help="Check for what this needs, on the engine that `up` takes.",
            show_default=False,
            autocompletion=complete_scenarios,
        ),
    ] = None,
    engine: Annotated[
        str | None,
        typer.Option(
            "--engine",
            help="Check this engine alone [default: all, and the GPUs].",
            autocompletion=lambda: list(names()),
        ),
    ] = None,
    sets: Sets = None,
    role: Annotated[
        bool,
        typer.Option("--role", help="Print the rights that the engine's login needs, and end."),
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="As data.")] = False,
) -> None:
    """Check this machine, or a cluster; say what to do.

    Exit codes: 0, or 4 where no run could start: no engine, no framework of the scenario, or
    a cluster that would refuse it.
    """
    from dataclasses import asdict

    from emulator.cli.examine import examine, examine_engine, examine_for, rights_of
    from emulator.report.listings import print_findings

    if engine is None and (role or (sets and not scenario)):
        raise UsageError("These options are about one engine.", "Add --engine NAME.")
    wanted = _scenario(scenario, sets) if engine or scenario else None
    if engine is not None and role:
        print(rights_of(engine, wanted), end="")  # noqa: T201
        return
    if engine is not None:
        findings = examine_engine(engine, wanted)
    else:
        findings = examine() if wanted is None else examine_for(wanted)
    if json:
        print_json([asdict(finding) for finding in findings])
    else:
        print_findings(findings, console())
    raise typer.Exit(4 if any(finding.status == "fatal" for finding in findings) else 0)


_ANY = (
    "name: doctor\nframework: none\nimage: none\n"
    "program: {command: ['true']}\ncluster: {worker: 1}\n"
)
"""A scenario for `--set kubernetes.namespace=NAME` alone."""


def _scenario(path: Path | None, sets: list[str] | None) -> Scenario:
    from emulator.scenario.loader import parse

    if path is None:
        return parse(_ANY, file="--set", sets=sets or ())
    return read(path).parse(sets or ())


def schema() -> None:
    """Print the JSON Schema of a scenario, for your editor."""
    from emulator.scenario.schema import json_schema

    print_json(json_schema())


def init(
    folder: Annotated[Path, typer.Argument(help="Where to write.")] = Path(),
    framework: Annotated[
        Framework | None,
        typer.Option(
            "--framework", help="What the program trains with [default: tensorflow]; none: Python."
        ),
    ] = None,
    tests: Annotated[
        bool, typer.Option("--tests", help="A suite of scenarios and tests for pytest instead.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Overwrite what is there.")] = False,
) -> None:
    """Write a scenario and a small program to start from. It runs as it is.

    The program also runs without the emulator: python train.py.
    """
    if framework is not None and tests:
        raise UsageError("--tests is for TensorFlow.", "Leave --framework out.")
    chosen = framework or Framework.TENSORFLOW
    files = _suite() if tests else _starter(folder, chosen.value)
    there = [folder / name for name in files if os.path.lexists(folder / name)]
    if there and not force:
        raise UsageError(f"{there[0]} is there already.", "--force overwrites it.")
    write_all(folder, files)
    for name in files:
        about = (
            ", by which editors complete and explain its keys" if name.name == SCHEMA_FILE else ""
        )
        note(f"wrote {folder / name}{about}")
    if tests and requirement_here() is None:
        where = folder / REQUIREMENTS
        note(f"write into {where} where CI gets the emulator from; only this machine has it")
    command = f"pytest {folder}" if tests else f"emulate up {folder / 'scenario.yaml'}"
    note(f"now try: {command}")


def _starter(folder: Path, framework: str) -> dict[Path, bytes]:
    """Return a starter's files: the scenario has the folder's name, the schema is for editors."""
    from emulator.scenario.schema import json_schema

    files, scenario = _files(_STARTERS / framework), Path("scenario.yaml")
    # Not Path.resolve: the folder may be a link that leads nowhere.
    files[scenario] = named(files[scenario].decode(), Path(os.path.abspath(folder)).name).encode()
    return {**files, Path(SCHEMA_FILE): f"{json.dumps(json_schema(), indent=2)}\n".encode()}


def _suite() -> dict[Path, bytes]:
    """Return the suite's files; it tests the program of the starter."""
    program = _STARTERS / Framework.TENSORFLOW.value / "train.py"
    files = {**_files(ROOT / "images" / "suite"), Path(program.name): program.read_bytes()}
    files[REQUIREMENTS] += f"{line}\n".encode() if (line := requirement_here()) else b""
    return files


def write_all(folder: Path, files: Mapping[Path, bytes]) -> None:
    """Write all files or none: what was not there before is removed if one can't be written."""
    made: list[Callable[[], None]] = []
    try:
        for name, content in files.items():
            path = folder / name
            with _refused(path):
                for parent in reversed((path.parent, *path.parent.parents)):
                    if not parent.is_dir():
                        parent.mkdir()
                        made.append(parent.rmdir)
                if not os.path.lexists(path):
                    made.append(path.unlink)
                atomic_write(path, content, many_writers=True)
    except BaseException:
        for undo in reversed(made):
            with contextlib.suppress(OSError):
                undo()
        raise


@contextlib.contextmanager
def _refused(path: Path) -> Iterator[None]:
    """Turn an OSError into a sentence: a full disk is nobody's mistake, another place is."""
    try:
        yield
    except OSError as error:
        # There is something where a folder has to be.
        number = errno.ENOTDIR if isinstance(error, FileExistsError) else error.errno or 0
        kind = EmulatorError if number in FULL else UsageError
        hint = MAKE_ROOM if number in FULL else "Choose another folder."
        raise kind(f"Can't write {path}: {os.strerror(number)}.", hint) from None


def requirement_here() -> str | None:
    """Return the line of a requirements file that installs this emulator elsewhere.

    None where pip did not get it from a repository or a URL that other machines can reach.
    """
    from importlib.metadata import PackageNotFoundError, distribution

    try:
        direct = distribution("training-emulator").read_text("direct_url.json")
    except PackageNotFoundError:
        return None
    return requirement(json.loads(direct or "{}"))


def requirement(direct: Mapping[str, Any]) -> str | None:
    """Return the same from the contents of a direct_url.json (PEP 610)."""
    url, vcs = str(direct.get("url")), direct.get("vcs_info")
    if "dir_info" in direct or not url.startswith(("https:", "http:", "ssh:", "git:")):
        return None
    source = f"{vcs['vcs']}+{url}@{vcs['commit_id']}" if vcs else url
    # Never the bare name: nothing is published under it yet.
    return f"training-emulator[test] @ {source}"


def _files(folder: Path) -> dict[Path, bytes]:
    """Return what is to be written where, hidden folders too."""
    found = (path for path in folder.rglob("*") if path.is_file() and path.suffix != ".pyc")
    return {path.relative_to(folder): path.read_bytes() for path in sorted(found)}


def version(
    json: Annotated[bool, typer.Option("--json", help="As data.")] = False,
) -> None:
    """Show the versions of emulate, Python and the engines."""
    found: dict[str, Any] = {
        "emulate": emulator.__version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "engines": _engines(),
    }
    if json:
        print_json(found)
        return
    engines = found.pop("engines")
    for name, value in {**found, **engines}.items():
        typer.echo(f"{name:<10} {value}")


def _engines() -> dict[str, str]:
    """Return each engine with what it says of itself: its version, or why it does not answer."""
    from emulator import engines
    from emulator.engines.base import Explaining

    found = {}
    for name in engines.names():
        try:
            one = engines.engine_class(name)
        except emulator.EmulatorError as error:
            found[name] = error.message
            continue
        first = next(iter(one.examine()), None) if issubclass(one, Explaining) else None
        found[name] = first.found if first else "nothing known"
    return found


# --- The template of emulate init -----------------------------------------------------------------

TEMPLATE_NAME = "starter"
"""The name of the template's scenario, which a folder without letters keeps."""
SCHEMA_FILE = "scenario.schema.json"
"""What the template's first line names: editors that know YAML read it from beside the scenario."""
_LONGEST = 40
"""Characters of a scenario's name."""


def name_from(folder: str) -> str:
    """Return the name of a scenario in a folder of this name: `My model_2` is `my-model-2`."""
    words = re.sub(r"[^a-z0-9]+", "-", folder.lower())
    name = re.sub(r"^[^a-z]+", "", words)[:_LONGEST].rstrip("-")
    return name or TEMPLATE_NAME


def named(template: str, folder: str) -> str:
    """Return the template with the name of its scenario replaced by that for the folder."""
    return template.replace(f"\nname: {TEMPLATE_NAME}\n", f"\nname: {name_from(folder)}\n", 1)
