"""The repository checks itself: layers, public names, documents, version."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from functools import cache
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path
from typing import get_args

import pytest

import emulator
from emulator.runtime import plugins
from scripts import draw_architecture as picture
from scripts import structure
from scripts.draw_architecture import imports, part, part_of
from tests.documents import of_all_plugins

ROOT = Path(__file__).parent.parent
MODULES = sorted((ROOT / "emulator").rglob("*.py"))
ARCHITECTURE = ROOT / "docs" / "architecture.md"

LAYERS = [
    {"errors"},
    {"validation"},
    {"runtime"},
    {"metrics"},
    {"faults"},
    {"scenario"},
    {"planning"},
    {"record"},
    {"analysis"},
    {"engines"},
    {"supervisor"},
    {"results", "api"},
    {"report"},
    {"session"},
    {"search", "trial"},
    {"cli", "pytest_plugin", "plugins", "__init__", "__main__"},
]
"""From the bottom up: a module imports from its own layer or from those before it."""

ONLY_IN = {
    "docker": {"engines/docker"},
    "kubernetes": {"plugins/kubernetes"},
    "websocket": {"plugins/kubernetes"},
    "typer": {"cli", "plugins/kubeflow/cli"},
    "rich": {"cli", "report"},
    "IPython": {"report"},
    "regex": {"validation"},
    "pynvml": {"metrics/gpu"},
    "subprocess": {"engines", "plugins/kubernetes", "cli"},
    "starlette": {"api"},
    "uvicorn": {"api"},
    "httpx": {"api"},
    "prometheus_client": {"plugins/exports"},
    "pyarrow": {"plugins/exports", "analysis"},
    "pandas": {"plugins/exports", "analysis"},
    "wandb": {"plugins/exports"},
    "mlflow": {"plugins/exports"},
    "opentelemetry": {"plugins/exports"},
    "tensorboard": {"plugins/exports"},
    "pytest": {"pytest_plugin"},
}


ROOMS = {
    "plugins.exports": set(),
    "metrics.gpu": {
        *("cli.examine", "engines.docker.task_containers", "supervisor.sampling"),
    },
    "engines.docker": {"cli.setup", "engines.kit.recipes"},
    "engines.docker.warm": {"engines.docker"},
    "engines.process": set(),
    "plugins.kubernetes": set(),
    "supervisor.takeover": {"session.run", "supervisor.cleanup", "supervisor.supervisor"},
    "plugins.kubeflow": set(),
    "session": {
        *("cli.demo", "cli.manual", "cli.report", "cli.up", "pytest_plugin.plugin"),
        *("pytest_plugin.harness", "pytest_plugin.memory_cluster", "search.api", "search.sweep"),
        "trial.perform",
    },
    "pytest_plugin": set(),
}
"""Features that live in one folder or module, and the only other modules that import it.

`emulator.__init__`, which lists what others import, and the registry of engines, which loads them
by name, are not counted.
"""


WORDS: dict[str, tuple[str, set[str]]] = {
    "engines.docker.warm": (
        r"warm|warming|warmstarts?|preload(?!_content)|spares",
        {
            *("engines", "engines.base", "engines.capabilities", "engines.docker.engine"),
            *("engines.docker.images", "engines.docker.logs", "engines.docker.usage"),
            *("engines.kit.recipes", "session.run", "supervisor.cleanup", "faults.preempt"),
            *("planning.plan", "planning.requested", "record.folder"),
            *("report.terminal", "results"),
            *("scenario.image", "scenario.frameworks.spec", "scenario.frameworks.registry"),
            *(f"scenario.frameworks.{name}" for name in ("jax", "pytorch", "tensorflow")),
            *("cli.runs", "cli.up", "session.from_python", "pytest_plugin.harness"),
            *("pytest_plugin.plugin", "pytest_plugin.settings", "session.ready"),
            "cli.sweep",
            *("search.api", "search.sweep"),
        },
    ),
    "plugins.exports": ("wandb|mlflow|otel|opentelemetry|parquet", set()),
    "metrics.gpu": (r"nvml\w*|GpuSampler|GpuInventory", set()),
    "supervisor.takeover": (
        r"RecoveredState|recover_run|resumption|takeover|reattach(ing)?",
        {
            *("engines.base", "engines.capabilities", "engines.docker.engine", "engines.memory"),
        },
    ),
}
"""Words of a feature, and the only modules that use them in code besides its room and its ROOMS.

Its seams: keys of the schema, entries of tables, protocols, sections of the report.
"""


ASKERS = {
    "sections": "scenario",
    "faults": "faults",
    "manifests": "scenario",
    "engines": "engines",
    "exports": "api",
    "commands": "cli",
}
"""The layer that asks for what plug-ins add: see `emulator/runtime/plugins.py`."""

PLUGINS = sorted(path.parent.name for path in (ROOT / "emulator" / "plugins").glob("*/__init__.py"))
WORDS_OF_PLUGINS = re.compile(
    r"(?i)\b(emulator\.plugins\.\w+|plugins\.(kubernetes|kubeflow|exports)|kubeflow\w*|[\w-]*kubectl|"
    r"tfjobs?|pytorchjobs?|mlflow|wandb|opentelemetry|perfetto)\b|['\"]kubernetes['\"]"
)
NAME_PLUGINS = {
    # Examples of manifests in the help of `up`, and of formats in that of `export`:
    *("cli/options", "cli/export", "cli/up"),
    # Words of other tools, and what replaces what was removed:
    "cli/words",
    # Whose values and variables these are; and a platform that takes machines away:
    *("metrics/formats", "scenario/frameworks/tensorflow", "faults/platforms/presets"),
}
"""The core's modules whose code has words of a plug-in."""


def layer(name: str) -> int:
    return next(number for number, names in enumerate(LAYERS) if name in names)


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_run_downward_only_and_foreign_libraries_stay_where_they_belong(path: Path) -> None:
    here, where = layer(part(path)), path.relative_to(ROOT / "emulator").with_suffix("")
    inside = {str(folder) for folder in (where, *where.parents)}
    for name in imports(path):
        top, _, rest = name.partition(".")
        if top == "emulator" and rest != "__version__":  # a constant, which loads nothing
            assert layer(part_of(rest or "__init__")) <= here, f"{path.name} imports {name}"
        assert top not in ONLY_IN or inside & ONLY_IN[top], f"{path.name} imports {name}"


@pytest.mark.parametrize("room", ROOMS)
def test_a_feature_is_imported_by_its_seams_only(room: str) -> None:
    name = f"emulator.{room}"

    def is_inside(module: str) -> bool:
        return module == name or module.startswith(f"{name}.")

    outside = {
        module.removeprefix("emulator.")
        for module, one in structure.modules().items()
        if not is_inside(module) and any(map(is_inside, one.imports))
    }
    assert outside - {"emulator", "engines"} == ROOMS[room]


@pytest.mark.parametrize("group", ASKERS)
def test_what_a_plugin_adds_is_of_the_layer_that_asks_for_it(group: plugins.Group) -> None:
    """It is loaded by name, so that no import shows that it is of a lower layer than its folder."""
    seen, left = set[str](), {entry.module for entry in ours(group)}
    while left:
        seen |= left
        needed = {other for module in left for other in imported_with(module)}
        inside = {other for other in needed if other.startswith("emulator.plugins.")}
        tops = {other.split(".")[1] for other in needed - inside}
        assert {top for top in tops if layer(top) > layer(ASKERS[group])} == set()
        left = inside - seen


def imported_with(module: str) -> set[str]:
    """Return the modules of the emulator that one imports when it is imported itself."""
    path = ROOT / module.replace(".", "/")
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    body = ast.parse(file.read_text()).body
    froms = [one for one in body if isinstance(one, ast.ImportFrom) and one.module]
    found = {f"{one.module}.{each.name}" for one in froms for each in one.names}
    whole = {name if name in structure.modules() else name.rpartition(".")[0] for name in found}
    return {name for name in whole if name.startswith("emulator.")}


def ours(group: plugins.Group) -> EntryPoints:
    """Return the entry points of this project in a group, as they are in pyproject.toml."""
    every = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]
    name = f"emulator.{group}"
    return EntryPoints(EntryPoint(n, place, name) for n, place in every.get(name, {}).items())


def test_every_plugin_adds_something_and_all_of_it_can_be_loaded() -> None:
    groups: tuple[plugins.Group, ...] = get_args(plugins.Group)
    entries = [entry for group in groups for entry in ours(group)]
    assert sorted({entry.module.split(".")[2] for entry in entries}) == PLUGINS
    for entry in entries:
        assert entry.load() is not None
    assert {*ASKERS} == {*groups}


def test_the_core_names_no_plugin() -> None:
    """By code: docstrings and comments may say where a rule is from."""

    def code(path: Path) -> str:
        tree = ast.parse(path.read_text())
        for node in ast.walk(tree):
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
                node.value.value = None  # also those of attributes
        return ast.unparse(tree)

    names = {str(path.relative_to(ROOT / "emulator").with_suffix("")): path for path in MODULES}
    outside = {name for name in names if not name.startswith("plugins/")}
    assert {name for name in outside if WORDS_OF_PLUGINS.search(code(names[name]))} <= NAME_PLUGINS


@pytest.mark.parametrize("room", WORDS)
def test_a_feature_is_named_by_its_seams_only(room: str) -> None:
    words, seams = WORDS[room]
    found = re.compile(rf"(?i)(?<![a-z])(?:{words})(?![a-z])")
    named = {
        module.removeprefix("emulator.")
        for module in structure.modules()
        if not f"{module}.".startswith((f"emulator.{room}.", "emulator.plugins."))
        and any(map(found.search, structure.names(module)))
    }
    assert (named - seams - ROOMS.get(room, set()), seams - named) == (set(), set())


def test_imports_are_followed_as_python_follows_them(tmp_path: Path) -> None:
    texts = {
        "__init__": "",
        "low": "class A:\n    def b(self): ...\n    def _c(self): ...\n    x = 1\n",
        "middle": "from p import low\ndef f(a, b, c, *, d, e, g, h):\n    from p.late import x\n",
        "late": "import p.middle\n",
        "types": "if TYPE_CHECKING:\n    from p.low import A\nfrom p.middle import f\n",
    }
    (tmp_path / "p").mkdir()
    for name, text in texts.items():
        (tmp_path / "p" / f"{name}.py").write_text(text)
    found = structure.modules(tmp_path / "p")
    edges = {name: sorted(one.imports) for name, one in found.items() if one.imports}
    assert edges == {
        "p.middle": ["p.late", "p.low"],
        "p.late": ["p.middle"],
        "p.types": ["p.middle"],
    }
    assert structure.longest_chain(found) == ["p.late", "p.middle", "p.low"]
    assert structure.with_one_importer(found) == ["p.late", "p.low"]
    assert (found["p.low"].methods, found["p.middle"].function) == (1, 2)
    assert found["p.middle"].crowded == ("p.middle.f",)


def test_public_names_can_be_imported() -> None:
    for name in emulator.__all__:
        assert getattr(emulator, name).__doc__


@pytest.mark.parametrize(
    ("module", "heavy"),
    [
        ("emulator", ["docker", "typer", "pydantic"]),
        # `emulate ps` has 0.2 s:
        ("emulator.engines.docker", [f"emulator.engines.docker.{m}" for m in ("images", "doctor")]),
        ("emulator.engines.process", ["docker", "emulator.scenario.schema"]),
    ],
)
def test_an_import_loads_nothing_heavy(module: str, heavy: list[str]) -> None:
    code = f"import {module}, sys; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_images_import_nothing_of_the_emulator() -> None:
    for path in (ROOT / "images").rglob("*.py"):
        if path.parent == ROOT / "images" / "suite" / "tests":
            continue  # tests of users, which run beside the emulator
        assert not [name for name in imports(path) if name.split(".")[0] == "emulator"], path


def test_every_module_has_a_docstring() -> None:
    missing = [str(p) for p in MODULES if not ast.get_docstring(ast.parse(p.read_text()))]
    assert missing == []


BEGINNINGS = {
    ".gz": b"\x1f\x8b",
    ".png": b"\x89PNG\r\n",
    ".npz": b"PK\x03\x04",
    ".zip": b"PK\x03\x04",
}
"""The first bytes of files of data, by the end of their names."""


@pytest.mark.parametrize("suffix", BEGINNINGS)
def test_a_file_of_data_is_what_its_name_says(suffix: str) -> None:
    """Not the text of a link, which is what is left of one where links are not copied as links."""
    for folder in ("docs", "emulator", "images", "tests"):
        for path in (ROOT / folder).rglob(f"*{suffix}"):
            assert path.read_bytes().startswith(BEGINNINGS[suffix]), path


def test_the_version_heads_the_changelog() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    heads = re.findall(r"(?m)^## (\S+)", (ROOT / "CHANGELOG.md").read_text())
    assert heads[0] == version


def documents() -> list[Path]:
    return [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]


NAMED = re.compile(r"\[`?([\w./-]+\.py|[\w-]+/)`?\]\(([^)#\s]+)\)")


@of_all_plugins
@pytest.mark.parametrize("path", documents(), ids=lambda p: p.name)
def test_links_in_documents_lead_somewhere_and_to_the_file_that_they_name(path: Path) -> None:
    text = path.read_text()
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text):
        assert "://" in target or (path.parent / target).exists(), target
    for label, target in NAMED.findall(text):
        assert label.rstrip("/").endswith(Path(target).name), f"[{label}] leads to {target}"


@of_all_plugins
def test_the_architecture_links_to_every_part_and_names_modules_that_exist() -> None:
    text = ARCHITECTURE.read_text()
    links = re.findall(r"\]\(\.\./emulator/([^)#\s]+)\)", text)
    linked = {link.partition("/")[0].removesuffix(".py") for link in links}
    assert {part(path) for path in MODULES} - {"__init__", "__main__"} - linked == set()
    text = re.sub(r"\[[^]]*\]\([^)]*\)", "", text)  # links have a test
    named = set(re.findall(r"`([\w/]+\.py)`", text))
    assert named - {path.name for path in MODULES} == set()


@of_all_plugins
def test_the_picture_of_the_architecture_is_up_to_date() -> None:
    assert picture.PICTURE.read_text() == picture.draw(), "run scripts/draw_architecture.py"


def test_the_picture_shows_circles() -> None:
    with pytest.raises(ValueError, match=r"a circle of imports: (a -> b -> a|b -> a -> b)"):
        picture.levels({"a": frozenset({"b"}), "b": frozenset({"a"})})


@of_all_plugins
@pytest.mark.parametrize("path", documents(), ids=lambda p: p.name)
def test_commands_and_make_targets_in_documents_exist(path: Path) -> None:
    text = path.read_text()
    for command in re.findall(r"(?m)\bemulate ([a-z]+)\b", text):
        assert re.search(rf"\b{command}\b", _help()), f"emulate {command}"
    targets = re.findall(r"(?m)^([a-z]+):", (ROOT / "Makefile").read_text())
    for target in re.findall(r"`make ([a-z]+)`|(?m:^make ([a-z]+))", text):
        assert (target[0] or target[1]) in targets


@cache
def _help() -> str:
    command = [sys.executable, "-m", "emulator", "--help"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout
