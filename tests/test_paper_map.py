"""docs/paper.md is true: its names exist, its labels and lines are complete."""

import re

from paper_pages import BASELINES, DESIGN, DOCS, PAPER, resolve, table
import pytest

from fcritic.study.catalog import folder_of, studies

JUDGES = studies(folder_of(), "theory").keys()
EXPLORATIONS = studies(folder_of(), "exploration").keys()
THEORY_PAGE = (DOCS / "theory.md").read_text(encoding="utf-8")
EXPLORATION_PAGE = (DOCS / "exploration.md").read_text(encoding="utf-8")

# The labels of the paper, so that these tests do not need its source.
DEEP_EQUATIONS = {
    "eq-policy-grad-full": 1,
    "eq-our-gradient-formula": 2,
    "eq-critic-eq": 4,
    "eq:func_q_nn": 11,
    "eq:tar_func_q_nn": 12,
    "eq:func_td_target": 13,
    "eq:func_q_loss": 14,
}
DEEP_ALGORITHMS = {"alg-meta-algorithm": 1, "alg-ensemble-algorithm": 4, "alg-nn": 5}
THEORY = [
    "eq-off-policy-formula-with-emphasis",
    "assumption-mixing",
    "assumption-linear",
    "assumption-closeness",
    "assumption: smoothness",
    "alg: target-based-evaluation",
    "eq:eval_metric",
    "thm-evaluation",
    "eq: Q-hat-convergence",
    "remark: selection-of-inner-parameter",
    "cor:weight_conv",
    "alg-linear-AC",
    "eq: xi-k-error",
    "eq: our-gradident-linear",
    "eq: delta",
    "thm-main-convergence",
    "eq: global-convergence",
    "eq-shared-linear-representation",
]
EXPLORATION = [
    "sec-psrl",
    "fig:psrl",
    "fig:mdp_opt_pi",
    "fig:ensemble_q_same_tar",
    "fig:ensemble_q_diff_tar",
    "fig:ensemble_fcritic",
]
MISSING = ["sec-psrl", "fig:exp_dmc"]  # the first in continuous control
LINES_OF_ALG_NN = 23  # with the ends of its loops, as they are printed
LINES_OF_META = 8
LINES_OF_EVALUATION = 11
LINES_OF_ACTOR_CRITIC = 21  # with its two comments


def names_in(text: str) -> list[str]:
    return sorted(set(re.findall(r"`(fcritic(?:\.\w+)+)`", text)))


def numbers(cell: str) -> list[int]:
    """The line numbers in a cell such as ``6, 23`` or ``12-15``."""
    found = []
    for part in cell.split(","):
        first, _, last = part.strip().partition("-")
        found += range(int(first), int(last or first) + 1)
    return found


@pytest.mark.parametrize("name", names_in(PAPER + DESIGN + BASELINES + THEORY_PAGE + EXPLORATION_PAGE))
def test_every_name_exists(name: str):
    resolve(name)


def test_a_name_that_does_not_exist_is_noticed():
    for name in ("fcritic.agents.fac.FAC.taux", "fcritic.agents.losses.td_targets", "fcritic.absent"):
        with pytest.raises((AttributeError, AssertionError)):
            resolve(name)


def test_a_name_is_written_in_full_or_not_at_all():
    """A name in backticks that begins with a module of the package would escape the test above."""
    modules = {path.stem for path in (DOCS.parent / "fcritic").rglob("*.py")} - {"train"}  # also a kind of row
    pages = PAPER + DESIGN + BASELINES + THEORY_PAGE + EXPLORATION_PAGE
    short = re.findall(rf"`((?:{'|'.join(modules)})\.[\w.]+)`", pages)
    assert [name for name in short if not name.endswith((".py", ".json", ".jsonl", ".txt"))] == []


def test_every_equation_of_the_deep_half_has_a_function():
    rows = {row[1].strip("`"): row for row in table("Equations")}
    assert rows.keys() == DEEP_EQUATIONS.keys()
    for label, number in DEEP_EQUATIONS.items():
        assert rows[label][0] == f"({number})"
        assert names_in(rows[label][2]), label


@pytest.mark.parametrize("label", DEEP_ALGORITHMS)
def test_every_algorithm_of_the_deep_half_has_a_section(label: str):
    headings = [line for line in PAPER.splitlines() if line.startswith("## ") and f"`{label}`" in line]
    assert len(headings) == 1
    assert str(DEEP_ALGORITHMS[label]) in re.findall(r"\d+", headings[0])


@pytest.mark.parametrize(
    ("heading", "count", "column"),
    [
        ("Algorithm 5", LINES_OF_ALG_NN, 2),
        ("Algorithms 1 and 4", LINES_OF_META, 1),
        ("Lines of Algorithm 4", LINES_OF_META, 1),
        ("Algorithm 2", LINES_OF_EVALUATION, 2),
        ("Algorithm 3", LINES_OF_ACTOR_CRITIC, 2),
    ],
)
def test_every_line_of_an_algorithm_occurs_once_and_has_a_function(heading: str, count: int, column: int):
    rows = table(heading)
    assert sorted(number for row in rows for number in numbers(row[0])) == list(range(1, count + 1))
    assert all(names_in(row[column]) for row in rows)


@pytest.mark.parametrize("label", THEORY)
def test_every_piece_of_the_theory_has_a_function_and_a_judge(label: str):
    rows = [row for row in table("The theory") if f"`{label}`" in row[1]]
    assert len(rows) == 1
    assert names_in(rows[0][2])
    judges = re.findall(r"`([\w-]+)`", rows[0][3])
    assert judges or rows[0][3] == "tests"
    assert set(judges) <= JUDGES


@pytest.mark.parametrize("label", EXPLORATION)
def test_every_piece_of_exploration_has_a_function_and_a_judge(label: str):
    rows = [row for row in table("Exploration") if f"`{label}`" in row[1]]
    assert len(rows) == 1
    assert names_in(rows[0][2])
    judges = set(re.findall(r"`([\w-]+)`", rows[0][3]))
    assert judges and judges <= EXPLORATIONS


@pytest.mark.parametrize("label", MISSING)
def test_what_is_missing_is_listed_as_missing(label: str):
    rows = [row for row in table("Not implemented") if f"`{label}`" in row[1]]
    assert len(rows) == 1
    assert "not yet" in rows[0][2]
