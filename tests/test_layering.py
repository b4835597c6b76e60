"""The shape of the package: imports follow the data, some libraries stay where they belong, files stay short."""

import ast
import graphlib
from pathlib import Path
import sys

import pytest

ROOT = Path(__file__).parent.parent / "fcritic"
FILES = {
    ".".join(path.relative_to(ROOT.parent).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted(ROOT.rglob("*.py"))
}
TREES = {name: ast.parse(path.read_text(encoding="utf-8")) for name, path in FILES.items()}

FLOW = [["types", "errors"], ["networks", "replay", "envs"], ["agents"], ["learning"], ["train"], ["cli"]]
"""Data flows to the right; nothing imports what is to its right, be it through others."""

MAX_FILE, MAX_FUNCTION = 250, 40


def is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING")


def imports(tree: ast.AST, package: str) -> set[str]:
    """Full names of all that is imported, also inside functions, but not for annotations alone."""
    found: set[str] = set()
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: -(node.level - 1) or None] if node.level else []
            module = ".".join([*above, *([node.module] if node.module else [])])
            found |= {f"{module}.{alias.name}" for alias in node.names}
        elif is_type_checking(node):
            found |= set().union(*(imports(ast.Module([part], []), package) for part in node.orelse))
        else:
            found |= imports(node, package)
    return found


def package_of(module: str) -> str:
    return module if FILES[module].name == "__init__.py" else module.rpartition(".")[0]


def module_of(name: str) -> str | None:
    """The module of ours that a full name lies in, or None where it is another package's."""
    while name and name not in FILES:
        name = name.rpartition(".")[0]
    return name or None


EVERYTHING = {name: imports(tree, package_of(name)) for name, tree in TREES.items()}
OURS = {name: {module_of(each) for each in found} - {None, name} for name, found in EVERYTHING.items()}


def unit(module: str) -> str:
    """The part below the package that a module belongs to: `fcritic.envs.dmc` to `envs`."""
    return [*module.split("."), ""][1]


def reachable(start: str) -> set[str]:
    """The modules that run when one is imported and used."""
    seen, todo = {start}, [start]
    while todo:
        new = OURS[todo.pop()] - seen
        seen |= new
        todo += new
    return seen


def in_unit(name: str) -> list[str]:
    modules = [module for module in FILES if unit(module) == name]
    assert modules, f"fcritic has no part {name}"
    return modules


def test_imports_are_seen_in_every_form():
    source = """
import a.b
from fcritic import replay
from . import base
def f():
    from c import d
if TYPE_CHECKING:
    import hidden
else:
    import shown
"""
    found = imports(ast.parse(source), "fcritic.agents")
    assert found == {"a.b", "fcritic.replay", "fcritic.agents.base", "c.d", "shown"}


@pytest.mark.parametrize("level", range(len(FLOW)), ids=lambda level: "-".join(FLOW[level]))
def test_imports_follow_the_data(level: int):
    later = {name for names in FLOW[level + 1 :] for name in names}
    for name in FLOW[level]:
        beside = set(FLOW[level]) - {name}
        for module in in_unit(name):
            found = {unit(other) for other in reachable(module)}
            assert not found & later, f"{module} imports {found & later}, which come after it"
            assert not found & beside, f"{module} imports {found & beside}, which stand beside it"


MODELS = "fcritic.exploration.tasks"
"""The exact models of the finite tasks, which are environments too."""


@pytest.mark.parametrize("name", ["envs", "replay"])
def test_environments_and_replay_know_only_the_types(name: str):
    for module in in_unit(name):
        models = {MODELS} if module == "fcritic.envs.finite" else set()
        assert {unit(other) for other in OURS[module] - models} <= {name, "types", "errors"}, module
    assert {unit(other) for other in reachable(MODELS)} == {"exploration", "errors"}


@pytest.mark.parametrize("name", ["results", "plots"])
def test_results_never_import_agents(name: str):
    for module in in_unit(name):
        assert "agents" not in {unit(other) for other in reachable(module)}, module


def test_the_theory_stands_alone():
    """It shares errors with the deep half and nothing else."""
    for module in in_unit("theory"):
        assert {unit(other) for other in reachable(module)} <= {"theory", "errors"}, module


def test_exploration_builds_on_the_theory_alone():
    """And on the disk, where finished parts are kept; but for the experiment that trains deep agents, which nothing
    else of it imports."""
    deep = {f"fcritic.exploration.experiments.{name}" for name in ("sparse", "sparse_files", "sparse_runs")}
    for module in set(in_unit("exploration")) - deep:
        assert {unit(other) for other in reachable(module)} <= {"exploration", "theory", "errors", "disk"}, module
    for module in deep:
        assert "cli" not in {unit(other) for other in reachable(module)}


def test_only_the_command_line_imports_the_viewers():
    users = {unit(module) for module, found in OURS.items() if any(unit(each) == "viewers" for each in found)}
    assert users == {"viewers", "cli"}


def test_the_check_of_environments_knows_no_agents():
    """It needs no JAX, and so begins at once."""
    for module in in_unit("checkup"):
        known = reachable(module) - {"fcritic.exploration", "fcritic.exploration.tasks"}  # models of small tasks
        assert {unit(other) for other in known} <= {"checkup", "envs", "types", "errors"}, module


def test_watching_needs_the_standard_library_alone():
    """So that the page is there at once, and a watcher takes no memory from a training."""
    for module in in_unit("watch"):
        assert {unit(other) for other in reachable(module)} <= {"watch", "disk", "layout", "errors"}, module
        others = {each.split(".")[0] for each in EVERYTHING[module]} - {"fcritic"}
        assert others <= sys.stdlib_module_names, module


def test_looking_inside_never_trains():
    for module in in_unit("inspection"):
        assert not {unit(other) for other in reachable(module)} & {"train", "reporting", "cli"}, module


def test_no_module_imports_itself_through_others():
    list(graphlib.TopologicalSorter(OURS).static_order())  # raises CycleError, which names the circle


@pytest.mark.parametrize(
    ("library", "allowed"),
    [
        ("matplotlib", {"fcritic.plots", "fcritic.theory.pictures"}),
        (
            "mujoco",
            {"fcritic.envs.dmc", "fcritic.envs.frames", "fcritic.envs.gym", "fcritic.envs.gym_state"}
            | {"fcritic.viewers.film", "fcritic.viewers.scene"},
        ),
        ("ray", {"fcritic.experiments.cluster"}),
        ("torch", set()),
        ("pickle", set()),
        ("cloudpickle", set()),
        ("hydra", set()),
    ],
)
def test_libraries_stay_where_they_belong(library: str, allowed: set[str]):
    users = {module for module, found in EVERYTHING.items() if any(each.split(".")[0] == library for each in found)}
    assert users <= allowed


@pytest.mark.parametrize("module", FILES)
def test_no_file_is_long(module: str):
    lines = len(FILES[module].read_text(encoding="utf-8").splitlines())
    assert lines <= MAX_FILE, f"{FILES[module].name} has {lines} lines; split it"


@pytest.mark.parametrize("path", sorted(Path(__file__).parent.rglob("*.py")), ids=lambda path: path.name)
def test_no_file_of_tests_is_long(path: Path):
    lines = len(path.read_text(encoding="utf-8").splitlines())
    assert lines <= MAX_FILE, f"{path.name} has {lines} lines; split it by subject"


def code_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """The lines of a function without its docstring and decorators."""
    total = function.end_lineno - function.lineno + 1
    if ast.get_docstring(function) is None:
        return total
    return total - (function.body[0].end_lineno - function.body[0].lineno + 1)


@pytest.mark.parametrize("module", FILES)
def test_no_function_is_long(module: str):
    functions = [
        node for node in ast.walk(TREES[module]) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    long = {function.name: code_lines(function) for function in functions if code_lines(function) > MAX_FUNCTION}
    assert not long, f"split {long} in {FILES[module].name}"
