"""The structure of the package: imports go one way, light folders stay light, and nothing depends on one machine."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Collection, Iterator, Mapping
from dataclasses import fields
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "interplay"

# What each room may import (DESIGN.md, "Layout"). Rooms that do not exist yet are already bound by it.
BASE = {"types", "config", "errors", "registry", "secret", "decode", "fetch"}
BELOW_SEATS = BASE | {"execution", "rewards", "envs", "algorithms"}
BELOW_TRAINING = BELOW_SEATS | {"models", "engines", "seats", "agents", "rollout"}
BELOW_CLI = BELOW_TRAINING | {"training", "evaluation", "distributed"}
MAY_IMPORT: dict[str, set[str]] = {
    "types": set(),
    "errors": set(),
    "registry": {"errors"},
    "secret": {"errors"},
    "decode": {"errors"},
    "fetch": set(),
    "config": {"types", "errors"},
    "execution": BASE,
    "rewards": BASE | {"execution"},
    "envs": BASE | {"execution", "rewards"},
    "models": BASE,
    "engines": BASE | {"models"},
    "algorithms": BASE,
    "seats": BELOW_SEATS,
    "agents": BELOW_SEATS | {"models", "engines", "seats"},
    "rollout": BELOW_SEATS | {"models", "engines", "seats", "agents"},
    "evaluation": BELOW_TRAINING,
    "training": BELOW_TRAINING,
    "distributed": BELOW_TRAINING | {"training", "evaluation"},
    "serving": BELOW_CLI,
    "publishing": BELOW_CLI,
    "viewer": BELOW_CLI,
    "cli": BELOW_CLI | {"serving", "publishing", "viewer"},
    "api": BELOW_CLI | {"serving", "publishing", "viewer", "cli"},  # import interplay as ip
    "__main__": {"cli"},  # python -m interplay
    "": set(),  # interplay/__init__.py itself
}
MODULES = sorted(SOURCE.rglob("*.py"))


@cache
def parsed(source: str) -> ast.Module:
    """Most tests of this file read all of the package."""
    return ast.parse(source)


def name_of(path: Path) -> str:
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """The statements directly inside a statement or a module. Expressions, which are most of a file, contain none."""
    for block in ("body", "orelse", "finalbody", "handlers", "cases"):
        yield from getattr(node, block, ())


def all_statements(node: ast.AST) -> Iterator[ast.AST]:
    """The statements at any depth."""
    for one in statements(node):
        yield one
        yield from all_statements(one)


def imports(tree: ast.AST, package: str, types: bool = False) -> Iterator[str]:
    """The full dotted names that are imported at any depth; with `types` also those under `if TYPE_CHECKING:`, which
    are never executed."""
    for node in statements(tree):
        only_types = isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING")
        if isinstance(node, ast.If) and only_types and not types:
            yield from imports(ast.Module(node.orelse, []), package, types)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            source = ".".join([*above, *([node.module] if node.module else [])])
            yield from (f"{source}.{alias.name}" for alias in node.names)
        else:
            yield from imports(node, package, types)


def violations(module: str, source: str, is_package: bool = False) -> list[str]:
    """The imports of `module` that violate the layout, as `module imports other`."""
    room = module.removeprefix("interplay").lstrip(".").split(".")[0]
    package = module if is_package else module.rpartition(".")[0]
    found = []
    for name in imports(parsed(source), package):
        if name.startswith("interplay."):
            other = name.split(".")[1]
            if other in MAY_IMPORT and other not in MAY_IMPORT[room] | {room}:
                found.append(f"{module} imports {name}")
    return found


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_imports_run_one_way(path: Path) -> None:
    """A folder imports only the folders below it, and never its sibling."""
    name = name_of(path)
    assert name.removeprefix("interplay").lstrip(".").split(".")[0] in MAY_IMPORT, "a room that DESIGN.md does not know"
    assert violations(name, path.read_text(encoding="utf-8"), path.name == "__init__.py") == []


@pytest.mark.parametrize(
    ("module", "source", "count"),
    [
        ("interplay.algorithms.credit", "from interplay.engines.engine import Request", 1),
        ("interplay.engines.engine", "from interplay import algorithms, types", 1),
        ("interplay.training.trainer", "from interplay.evaluation import intervals", 1),
        ("interplay.evaluation.report", "def f():\n    import interplay.training.trainer", 1),
        ("interplay.rollout.runner", "class A:\n    def f(self):\n        from interplay.training import batch", 1),
        ("interplay.types", "from interplay.errors import EnvError", 1),
        ("interplay.envs.env", "try:\n    from ..agents import bots\nexcept ImportError:\n    pass", 1),
        ("interplay.agents.player", "from . import bots\nfrom ..rollout.runner import Runner", 1),
        ("interplay.models.load", "from interplay.engines.engine import Engine", 1),
        ("interplay.execution.programs", "from interplay.rewards import verify", 1),
        ("interplay.engines.engine", "import interplay.envs.env as e", 1),
        (
            "interplay.seats.seating",
            "if x:\n    import interplay.cli.main\nelse:\n    import interplay.training.sft",
            2,
        ),
        ("interplay.rollout.tree", "if TYPE_CHECKING:\n    from interplay.training import batch", 0),
        ("interplay.rollout.tree", "if TYPE_CHECKING:\n    pass\nelse:\n    from interplay.training import batch", 1),
        ("interplay.cli.main", "from interplay import __version__\nfrom interplay.training import trainer", 0),
    ],
)
def test_the_import_rule_catches_planted_violations(module: str, source: str, count: int) -> None:
    """The checker finds imports at every depth, also relative ones, and ignores type-only imports."""
    assert len(violations(module, source)) == count


def edges(sources: Mapping[str, str], packages: Collection[str]) -> dict[str, set[str]]:
    """Which file imports which. A name from a package's `__init__` is an import of that file."""
    found: dict[str, set[str]] = {}
    for module, source in sources.items():
        package = module if module in packages else module.rpartition(".")[0]
        named = set()
        for name in imports(parsed(source), package, types=True):
            while name and name not in sources:
                name = name.rpartition(".")[0]
            if name and name != module:
                named.add(name)
        found[module] = named
    return found


def circle(graph: Mapping[str, Collection[str]]) -> list[str]:
    """The files of a circle of imports, in order; empty if there is none."""
    done: set[str] = set()

    def walk(module: str, path: list[str]) -> list[str]:
        if module in path:
            return path[path.index(module) :]
        if module in done:
            return []
        for other in sorted(graph.get(module, ())):
            if found := walk(other, [*path, module]):
                return found
        done.add(module)
        return []

    return next((found for module in sorted(graph) if (found := walk(module, []))), [])


def test_no_circle_between_files() -> None:
    """Files import each other in one direction, also inside a folder; imports inside functions and for types count."""
    sources = {name_of(p): p.read_text(encoding="utf-8") for p in MODULES}
    packages = {name_of(p) for p in MODULES if p.name == "__init__.py"}
    assert circle(edges(sources, packages)) == []


@pytest.mark.parametrize(
    ("sources", "found"),
    [
        ({"p.a": "from p import b", "p.b": "def f():\n    from p.a import x", "p": ""}, ["p.a", "p.b"]),
        ({"p.a": "import p.b", "p.b": "from p.c import x", "p.c": "from . import a", "p": ""}, ["p.a", "p.b", "p.c"]),
        ({"p": "from p.a import x", "p.a": "from p import y"}, ["p", "p.a"]),
        ({"p": "from p.a import x", "p.a": "from p import b", "p.b": ""}, []),
        ({"p.a": "if TYPE_CHECKING:\n    from p import b", "p.b": "from p import a", "p": ""}, ["p.a", "p.b"]),
    ],
)
def test_the_circle_rule_catches_planted_circles(sources: dict[str, str], found: list[str]) -> None:
    """Through functions, relative imports, a package's own file, and imports that are only for types."""
    assert circle(edges(sources, {"p"})) == found


def test_training_does_not_know_the_local_engine() -> None:
    """Engine and learner share `models/`; the learner works with any engine behind the protocol. Imports that are only
    for types count too."""
    for path in (p for p in MODULES if name_of(p).startswith("interplay.training")):
        found = imports(parsed(path.read_text(encoding="utf-8")), name_of(path), types=True)
        assert [n for n in found if n.startswith("interplay.engines.local")] == [], path


def test_types_are_standard_library_only() -> None:
    """types/ and errors.py import nothing that must be installed; registry.py only adds errors.py."""
    files = [*sorted((SOURCE / "types").glob("*.py")), SOURCE / "errors.py", SOURCE / "registry.py"]
    assert len(files) > 6
    for path in files:
        ours = "interplay.errors" if path.stem == "registry" else "interplay.types."
        found = imports(parsed(path.read_text(encoding="utf-8")), "interplay.types")
        outside = [n for n in found if n.split(".")[0] not in sys.stdlib_module_names]
        assert [n for n in outside if not n.startswith(ours)] == [], path


def test_a_turn_has_at_most_15_fields() -> None:
    """What one algorithm or one step needs is stored beside the turns, in Credit or with the algorithm."""
    from interplay.types import Turn

    assert len(fields(Turn)) <= 15


def test_adapted_packages_are_imported_only_where_they_are_adapted() -> None:
    """ray, vllm, sglang and so on are imported only by their adapter."""
    homes = {
        "ray": ("distributed",),
        "vllm": ("engines.vllm",),
        "sglang": ("engines.sglang",),
        "langgraph": ("agents",),
        **dict.fromkeys(("gymnasium", "pettingzoo", "pyspiel", "reasoning_gym", "textarena"), ("envs.adapters",)),
    }
    for path in MODULES:
        name = name_of(path).removeprefix("interplay.")
        for imported in imports(parsed(path.read_text(encoding="utf-8")), name_of(path)):
            home = homes.get(imported.split(".")[0])
            assert home is None or name.startswith(home), f"{name} imports {imported}"


LIGHT = """
import importlib, pkgutil, sys
from pathlib import Path
import interplay.types, interplay.config, interplay.errors, interplay.algorithms.credit
import interplay.seats.seating, interplay.agents.bots, interplay.cli.main, interplay.cli.train
import interplay.rewards.verify
import interplay.envs, interplay.algorithms
for info in pkgutil.walk_packages(interplay.envs.__path__, "interplay.envs."):
    importlib.import_module(info.name)
for name in interplay.algorithms.known():
    importlib.import_module("interplay.algorithms." + name)
from interplay.config import load
from interplay.rollout.resolve import resolve
recipes = sorted(Path("recipes").glob("*/*.toml"))
for recipe in recipes:
    plan = resolve(load(recipe))
    plan.seats_for(plan.task(0))
heavy = [m for m in ("torch", "transformers", "tokenizers", "ray", "vllm") if m in sys.modules]
print(len(recipes), heavy)
"""


def test_recipes_resolve_without_torch() -> None:
    """Every shipped recipe is valid, and can be checked and printed without importing torch."""
    done = subprocess.run(
        [sys.executable, "-c", LIGHT],
        cwd=ROOT, env={"PYTHONPATH": str(ROOT / "src"), "PATH": ""}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    count, heavy = done.stdout.strip().split(" ", 1)
    assert heavy == "[]"
    assert int(count) == len(list((ROOT / "recipes").glob("*/*.toml"))) > 0


def test_the_stream_imports_no_torch() -> None:
    command = "import sys, interplay.rollout.stream; print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", command], capture_output=True, text=True).stdout == "False\n"


def public_types(source: str) -> list[str]:
    """The classes and the aliases with a capital letter that a file defines at its top level."""
    names = []
    for node in parsed(source).body:
        if isinstance(node, ast.ClassDef):
            names.append(node.name)
        elif isinstance(node, ast.Assign):
            names += [target.id for target in node.targets if isinstance(target, ast.Name)]
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names.append(node.target.id)
    return [name for name in names if re.match(r"[A-Z]\w*[a-z]", name)]


def test_no_two_public_types_share_a_name() -> None:
    """One name means one thing in the whole package. `Options` is always an environment's own."""
    assert public_types("class A1b: ...\nBc = int\nCONST = 1\n_De = 2\nT = 3\nEf: int = 4") == ["A1b", "Bc", "Ef"]
    homes: dict[str, list[str]] = {}
    for path in MODULES:
        for name in public_types(path.read_text(encoding="utf-8")):
            homes.setdefault(name, []).append(name_of(path))
    environments = homes.pop("Options")
    assert all(home.startswith("interplay.envs.") for home in environments)
    shared = {name: where for name, where in homes.items() if len(where) > 1}
    assert shared == {}


def prints(source: str) -> list[int]:
    if "print" not in source:
        return []
    calls = (n for n in ast.walk(parsed(source)) if isinstance(n, ast.Call))
    return [n.lineno for n in calls if isinstance(n.func, ast.Name) and n.func.id == "print"]


def test_only_the_command_line_prints() -> None:
    """Everything below cli reports through its caller or the log."""
    assert prints("def f():\n    print('x')") == [2]
    talking = {
        name_of(p): lines
        for p in MODULES
        if not name_of(p).startswith("interplay.cli") and (lines := prints(p.read_text(encoding="utf-8")))
    }
    assert talking == {}


# A folder of somebody's machine; put together here so that this file does not match itself.
MACHINE_PATH = re.compile(r"(?<![\w.~$}])/(?:" + "|".join(("home", "Users", "root", "work", "tmp", "mnt")) + r")/\w")


def test_no_path_of_one_machine_is_in_the_tree() -> None:
    """Nothing here works only on the machine where it was written."""
    assert MACHINE_PATH.search('folder = "' + "/ho" + 'me/me/x"')
    assert not MACHINE_PATH.search("see https://example.org/" + "work/x and ./" + "tmp/x")
    files = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    ).stdout.split("\0")  # fmt: skip
    if not any(files):  # not a checkout (an unpacked archive): look at what is there
        files = [str(p.relative_to(ROOT)) for d in ("src", "recipes", "tests") for p in (ROOT / d).rglob("*.*")]
    found = []
    for file in files:
        path = ROOT / file
        if path.suffix in (".py", ".toml", ".md", ".txt", ".sh", ".yml", ".cfg", "") and path.is_file():
            lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
            found += [f"{file}:{n}: {line.strip()}" for n, line in enumerate(lines, 1) if MACHINE_PATH.search(line)]
    assert found == []


# Functions with more parameters than six, and why each has them. Triton kernels take their tensors one by one.
MANY_PARAMETERS = {
    "interplay.algorithms.losses.policy_loss": "the terms of one formula",
    "interplay.cli.judge.serve": "the options of one command",
    "interplay.cli.judge.train": "the options of one command",
    "interplay.cli.main.train": "the options of one command",
    "interplay.cli.main.export": "the options of one command",
    "interplay.cli.prepare.prepare": "the options of one command",
    "interplay.envs.tasks.prepare.prepare": "the options of one command",
    "interplay.engines.local.engine.__init__": "settings that do not depend on each other, each with a default",
    "interplay.envs.programs.coroutine.__call__": "what chat APIs take, each with a default",
    "interplay.models.fused.forward": "what a layer reads, and what it writes to",
    "interplay.models.kernels.attention._attend": "calls a kernel",
    "interplay.models.kernels.attention.decode_new": "calls a kernel",
    "interplay.training.logprobs._logits_backward": "calls a kernel",
    "interplay.training.spans._flash_backward": "the tensors of one backward pass",
    "interplay.training.spans._plain_backward": "the tensors of one backward pass",
    "interplay.training.spans.forward": "torch.autograd gives a function its tensors one by one",
}


def functions() -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """Every function of the package that is not a Triton kernel."""
    for path in MODULES:
        for node in all_statements(parsed(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not any(
                "triton" in ast.unparse(decorator) for decorator in node.decorator_list
            ):
                yield f"{name_of(path)}.{node.name}", node


def test_files_have_at_most_400_lines() -> None:
    long = {name_of(path): n for path in MODULES if (n := path.read_text(encoding="utf-8").count("\n")) > 400}
    assert long == {}


def test_functions_have_at_most_50_lines_of_code() -> None:
    """Docstrings are not counted."""
    long = {}
    for name, node in functions():
        text = ast.get_docstring(node, clean=False)
        lines = (node.end_lineno or 0) - node.lineno + 1 - (text.count("\n") + 1 if text else 0)
        if lines > 50:
            long[name] = lines
    assert long == {}


def test_functions_have_at_most_six_parameters_unless_a_reason_is_given() -> None:
    many = set()
    for name, node in functions():
        given = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        if len([a for a in given if a.arg not in ("self", "cls")]) > 6:
            many.add(name)
    assert many == set(MANY_PARAMETERS), "MANY_PARAMETERS lists exactly the functions that have more"


def test_the_readme_shows_the_folders_as_they_are() -> None:
    """Its tree has every folder, and a folder imports only folders that stand above it there. Files that the walk of
    one datum names exist."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    tree = readme.split("## The tree")[1].split("```")[1]
    listed = re.findall(r"^  (\w+)/ ", tree, re.MULTILINE)
    rooms = {name_of(path).split(".")[1] for path in MODULES if path.parent != SOURCE}
    assert len(listed) == len(rooms) and set(listed) == rooms
    for path in MODULES:
        room = name_of(path).removeprefix("interplay").lstrip(".").split(".")[0]
        found = imports(parsed(path.read_text(encoding="utf-8")), name_of(path))
        others = {name.split(".")[1] for name in found if name.startswith("interplay.")} & rooms - {room}
        above = listed[: listed.index(room)] if room in listed else listed
        assert others <= set(above), f"{name_of(path)} imports a folder that README's tree lists below {room}"
    walk = readme.split("## The way of one sample through the code")[1].split("## The tree")[0]
    named = re.findall(r"`([a-z_]+/[\w/]*(?:\.py)?)`", walk)
    assert len(named) > 8 and [name for name in named if not (SOURCE / name).exists()] == []
