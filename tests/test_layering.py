"""The shape of the package: imports follow the data, some libraries stay where they belong."""

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

FLOW = [
    ["types", "errors", "ensembles", "randomness", "disk", "code"],
    ["networks"],
    ["kernels", "envs"],
    ["agents"],
    ["training"],
    ["api"],
    ["cli"],
]
"""Data flows to the right; nothing imports what is to its right, be it through others."""


def is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING")


def imports(tree: ast.AST, package: str, annotations: bool = False) -> set[str]:
    """Full names of all that is imported, also inside functions; `annotations`: also what only these need."""
    found: set[str] = set()
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: -(node.level - 1) or None] if node.level else []
            module = ".".join([*above, *([node.module] if node.module else [])])
            found |= {f"{module}.{alias.name}" for alias in node.names}
        elif is_type_checking(node) and not annotations:
            found |= set().union(*(imports(ast.Module([part], []), package) for part in node.orelse))
        else:
            found |= imports(node, package, annotations)
    return found


def package_of(module: str) -> str:
    return module if FILES[module].name == "__init__.py" else module.rpartition(".")[0]


def module_of(name: str) -> str | None:
    """The module of ours that a full name lies in, or None where it is another package's."""
    while name and name not in FILES:
        name = name.rpartition(".")[0]
    return name or None


def own(everything: dict[str, set[str]]) -> dict[str, set[str]]:
    """Of what each module imports, the modules that are ours."""
    return {name: {module_of(each) for each in found} - {None, name} for name, found in everything.items()}


EVERYTHING = {name: imports(tree, package_of(name)) for name, tree in TREES.items()}
OURS = own(EVERYTHING)


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
from fcritic.training import replay
from . import base
def f():
    from c import d
if TYPE_CHECKING:
    import hidden
else:
    import shown
"""
    found = imports(ast.parse(source), "fcritic.agents")
    assert found == {"a.b", "fcritic.training.replay", "fcritic.agents.base", "c.d", "shown"}
    assert imports(ast.parse(source), "fcritic.agents", annotations=True) == found | {"hidden"}


@pytest.mark.parametrize("level", range(len(FLOW)), ids=lambda level: "-".join(FLOW[level]))
def test_imports_follow_the_data(level: int):
    later = {name for names in FLOW[level + 1 :] for name in names}
    for name in FLOW[level]:
        for module in in_unit(name):
            found = {unit(other) for other in reachable(module)}
            assert not found & later, f"{module} imports {found & later}, which come after it"


MODELS = "fcritic.envs.exact"
"""The exact models of the finite tasks, which the theory and the studies of exploration share."""


def test_environments_know_only_the_types():
    for module in in_unit("envs"):
        assert {unit(other) for other in OURS[module]} <= {"envs", "types", "errors", "disk", "code"}, module


def test_the_rest_of_the_package_reaches_kernels_by_their_door():
    """And the layout of vectors. So the program of a CPU loads no kernel."""
    rooms = {"fcritic.kernels", "fcritic.kernels.packing"}
    for module in set(FILES) - set(in_unit("kernels")):
        assert {other for other in OURS[module] if unit(other) == "kernels"} <= rooms, module
    assert not reachable("fcritic.agents.recipes") & (set(in_unit("kernels")) - rooms)


def test_runs_and_logs_know_arrays_but_no_agents():
    for name in ("runs", "logs"):
        for module in in_unit(name):
            assert {unit(other) for other in reachable(module)} <= {"", "runs", "logs", "disk", "errors"}, module


def test_results_never_import_agents():
    for module in in_unit("results"):
        assert "agents" not in {unit(other) for other in reachable(module)}, module


def test_the_theory_stands_alone():
    """It shares errors and exact models with the deep half and nothing else; exploration builds on it."""
    shared = {MODELS, "fcritic.errors"}
    for module in in_unit("theory"):
        assert {unit(other) for other in reachable(module) - shared} <= {"theory"}, module
    for module in in_unit("exploration"):
        assert {unit(other) for other in reachable(module) - shared} <= {"exploration", "theory"}, module


def test_only_the_command_line_imports_the_viewers():
    users = {unit(module) for module, found in OURS.items() if any(unit(each) == "view" for each in found)}
    assert users == {"view", "cli"}


def test_the_check_of_environments_knows_no_agents():
    """It needs no JAX, and so begins at once."""
    modules = [module for module in FILES if module.startswith("fcritic.envs.check")]
    assert modules
    for module in modules:
        assert {unit(other) for other in reachable(module)} <= {"envs", "types", "errors", "disk", "code"}, module


def test_watching_needs_the_standard_library_alone():
    """So that the page is there at once, and a watcher takes no memory from a training."""
    modules = [module for module in FILES if module.startswith("fcritic.view.watch")]
    assert modules
    for module in modules:
        others = {each.split(".")[0] for other in reachable(module) for each in EVERYTHING[other]} - {"fcritic"}
        assert others <= sys.stdlib_module_names, module


def test_studies_import_the_package_and_never_the_reverse():
    users = {
        module for module, found in EVERYTHING.items() if any(each.split(".")[0] == "studies" for each in found)
    }
    assert users == set()
    files = sorted((ROOT.parent / "studies").rglob("*.py"))
    found = set().union(*(imports(ast.parse(file.read_text(encoding="utf-8")), "") for file in files))
    assert not {unit(each) for each in found if each.startswith("fcritic.")} & {"cli", "view", "startup", "kernels"}


def test_no_module_imports_itself_through_others():
    everything = {name: imports(tree, package_of(name), annotations=True) for name, tree in TREES.items()}
    list(graphlib.TopologicalSorter(own(everything)).static_order())  # raises CycleError, which names the circle


@pytest.mark.parametrize(
    ("library", "allowed"),
    [
        ("matplotlib", {"fcritic.results.plots"}),
        (
            "mujoco",
            {"fcritic.envs.dmc", "fcritic.envs.dm_control_patches", "fcritic.envs.gym"}
            | {"fcritic.view.film", "fcritic.view.scene"},
        ),
        ("ray", {"fcritic.study.cluster"}),
        ("optuna", {"fcritic.study.tuning"}),
        ("torch", set()),
        ("benchmarks", set()),
        ("pickle", set()),
        ("cloudpickle", set()),
        ("hydra", set()),
    ],
)
def test_libraries_stay_where_they_belong(library: str, allowed: set[str]):
    users = {module for module, found in EVERYTHING.items() if any(each.split(".")[0] == library for each in found)}
    assert users <= allowed
