"""What the README shows must run, and what it names must exist."""

from pathlib import Path
import re

from fcritic.agents.recipes import RECIPES
from fcritic.cli.dispatch import COMMANDS

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_python_example_runs():
    (code,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    names: dict = {}
    exec(code, names)
    assert names["value"].shape == () and names["code"].shape == (16,)
    assert type(names["slope"]) is type(names["policy"])


def test_every_recipe_is_listed_and_every_command_exists():
    table = README.split("| recipe | algorithm |")[1].split("\n\n")[0]
    listed = [name for row in table.splitlines()[2:] for name in re.findall(r"`([^`]+)`", row.split("|")[1])]
    assert sorted(listed) == sorted(RECIPES)
    assert set(re.findall(r"^    fcritic (\w+)", README, re.MULTILINE)) <= set(COMMANDS)


def test_it_is_short():
    assert len(README.splitlines()) <= 150


def test_every_file_it_points_to_is_there():
    targets = re.findall(r"\]\(([^)#]+)\)", README)
    assert len(targets) > 5
    assert [target for target in targets if not (ROOT / target).exists()] == []


def test_the_table_beside_others_names_checks_that_exist():
    table = README[README.index("## Beside others") :].split("\n\n")[2]
    head, _, *rows = ([cell.strip() for cell in row.split("|")[1:-1]] for row in table.splitlines())
    assert head[1] == "fcritic" and len(rows) > 10 and {len(row) for row in rows} == {len(head)}
    for row in rows:
        kind, _, name = row[-1].strip("`").partition(" ")
        if kind == "make":
            assert re.search(rf"^{name}:", (ROOT / "Makefile").read_text(), re.MULTILINE)
        elif kind == "fcritic":
            assert name.split()[0] in {*COMMANDS, "--help"}
        else:
            assert "def test_" in (ROOT / kind).read_text()
        assert set(row[1:-1]) <= {"yes", "p", "no"}, row
    ours = {row[0]: row[1] for row in rows}
    assert {name for name, mark in ours.items() if mark != "yes"} == {
        "discrete actions, images",
        "thousands of simulations on the GPU",
    }
