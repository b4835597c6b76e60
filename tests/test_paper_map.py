"""docs/paper.md is true: its names exist, its labels and lines are complete."""

import re

from paper_pages import DOCS, PAPER, names_in, resolve, table
import pytest

from fcritic.study.catalog import folder_of, studies

JUDGES = studies(folder_of(), "theory").keys()
EXPLORATIONS = studies(folder_of(), "exploration").keys()
PAGES = [*DOCS.glob("*.md"), *(DOCS.parent / "studies").glob("*/README.md")]

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
LINES = {  # of each algorithm, as they are printed, and the column of the functions
    "Algorithm 5": (23, 2),  # with the ends of its loops
    "Algorithms 1 and 4": (8, 1),
    "Lines of Algorithm 4": (8, 1),
    "Algorithm 2": (11, 2),
    "Algorithm 3": (21, 2),  # with its two comments
}


def numbers(cell: str) -> list[int]:
    """The line numbers in a cell such as ``6, 23`` or ``12-15``."""
    found = []
    for part in cell.split(","):
        first, _, last = part.strip().partition("-")
        found += range(int(first), int(last or first) + 1)
    return found


def test_every_name_exists():
    found = names_in("".join(page.read_text(encoding="utf-8") for page in PAGES))
    assert len(found) > 200
    for name in found:
        resolve(name)


def test_a_short_name_means_one_thing():
    assert resolve("FAC.tau") is resolve("fcritic.agents.fac.FAC.tau")
    assert names_in("`FAC.tau`, `fcritic.config`, `config.json`, `unheard.of`, FAC.members") == [
        "FAC.tau",
        "fcritic.config",
    ]


def test_a_name_that_does_not_exist_is_noticed():
    for name in ("fcritic.agents.fac.FAC.taux", "FAC.taux", "fcritic.agents.losses.td_targets", "fcritic.absent"):
        with pytest.raises((AttributeError, AssertionError)):
            resolve(name)
    with pytest.raises(AssertionError, match="more than one"):
        resolve("export.export")


def test_every_equation_of_the_deep_half_has_a_function():
    rows = {row[1].strip("`"): row for row in table("Equations")}
    assert rows.keys() == DEEP_EQUATIONS.keys()
    for label, number in DEEP_EQUATIONS.items():
        assert rows[label][0] == f"({number})"
        assert names_in(rows[label][2]), label


def test_every_algorithm_of_the_deep_half_has_a_section():
    for label, number in DEEP_ALGORITHMS.items():
        (heading,) = [line for line in PAPER.splitlines() if line.startswith("## ") and f"`{label}`" in line]
        assert str(number) in re.findall(r"\d+", heading)


def test_every_line_of_an_algorithm_occurs_once_and_has_a_function():
    for heading, (count, column) in LINES.items():
        rows = table(heading)
        assert sorted(number for row in rows for number in numbers(row[0])) == list(range(1, count + 1)), heading
        assert all(names_in(row[column]) for row in rows), heading


def test_every_piece_of_the_theory_has_a_function_and_a_judge():
    for label in THEORY:
        (row,) = [row for row in table("The theory") if f"`{label}`" in row[1]]
        assert names_in(row[2]), label
        judges = re.findall(r"`([\w-]+)`", row[3])
        assert judges or row[3] == "tests", label
        assert set(judges) <= JUDGES, label


def test_every_piece_of_exploration_has_a_function_and_a_judge():
    for label in EXPLORATION:
        (row,) = [row for row in table("Exploration") if f"`{label}`" in row[1]]
        judges = set(re.findall(r"`([\w-]+)`", row[3]))
        assert names_in(row[2]) and judges and judges <= EXPLORATIONS, label
