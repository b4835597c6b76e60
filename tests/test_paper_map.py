"""docs/paper.md is true: its names exist, its labels and lines are complete, its defaults are the real ones."""

import ast
import dataclasses
import importlib
from pathlib import Path
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fcritic.agents.critic_ensemble import CriticEnsembleAgent
from fcritic.agents.fac import FAC
from fcritic.agents.sac import SAC
from fcritic.agents.td3 import TD3
from fcritic.exploration.experiments import EXPERIMENTS as EXPLORATIONS
from fcritic.networks.actor_encoder import EncoderConfig
from fcritic.networks.mlp import MLP
from fcritic.theory.experiments import EXPERIMENTS

DOCS = Path(__file__).parent.parent / "docs"
PAPER = (DOCS / "paper.md").read_text(encoding="utf-8")
DESIGN = (DOCS / "design.md").read_text(encoding="utf-8")
BASELINES = (DOCS / "baselines.md").read_text(encoding="utf-8")
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

HYPERPARAMETERS = {
    "optimizer": "Adam",
    "learning rate": "3e-4",
    "batch size": "256",
    "discount factor (gamma)": "0.99",
    "target update rate (tau)": "0.005",
    "actor network hidden layers": "(256, 256)",
    "critic state-action encoder hidden layers": "(256, 256)",
    "critic joint encoder hidden layers": "(256, 256)",
    "actor transformer encoder number of layers": "4",
    "actor transformer encoder number of heads": "1",
    "size of trainable evaluation samples for actor encoder": "512",
    "actor network layers to extract hidden neurons for actor encoder": "last two",
    "actor encoding dimension": "128",
    "state-action encoding dimension": "64",
    "activation function": "ReLU",
    "critics and actors (n)": "10",  # this and the next one are given in the text only
    "critic updates per actor update (G)": "3",
}


def table(heading: str) -> list[list[str]]:
    """The rows of the table below a heading that begins so, without its head."""
    sections = [part for part in PAPER.split("\n## ")[1:] if part.startswith(heading)]
    assert len(sections) == 1, f"docs/paper.md has {len(sections)} sections that begin with {heading!r}"
    rows = [line.strip().strip("|") for line in sections[0].splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row.split("|")] for row in rows[2:]]


def names_in(text: str) -> list[str]:
    return sorted(set(re.findall(r"`(fcritic(?:\.\w+)+)`", text)))


def resolve(name: str) -> object:
    """What a dotted name means: a module, or what is found in one attribute by attribute."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:length]))
        except ModuleNotFoundError:
            continue
        for part in parts[length:]:
            fields = getattr(found, "__dataclass_fields__", {})
            found = fields[part] if part in fields and not hasattr(found, part) else getattr(found, part)
        return found
    raise AssertionError(f"{name} is no module")


def field_default(name: str) -> object:
    owner, _, field = name.rpartition(".")
    return resolve(owner).__dataclass_fields__[field].default


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
    assert set(judges) <= EXPERIMENTS.keys()


@pytest.mark.parametrize("label", EXPLORATION)
def test_every_piece_of_exploration_has_a_function_and_a_judge(label: str):
    rows = [row for row in table("Exploration") if f"`{label}`" in row[1]]
    assert len(rows) == 1
    assert names_in(rows[0][2])
    judges = set(re.findall(r"`([\w-]+)`", rows[0][3]))
    assert judges and judges <= EXPLORATIONS.keys()


@pytest.mark.parametrize("label", MISSING)
def test_what_is_missing_is_listed_as_missing(label: str):
    rows = [row for row in table("Not implemented") if f"`{label}`" in row[1]]
    assert len(rows) == 1
    assert "not yet" in rows[0][2]


def test_every_hyperparameter_has_its_row_with_the_papers_value():
    stated = {row[0]: row[1] for row in table("Hyperparameters")}
    assert {name: stated.get(name) for name in HYPERPARAMETERS} == HYPERPARAMETERS
    assert stated.keys() == HYPERPARAMETERS.keys()


@pytest.mark.parametrize("row", table("Hyperparameters"), ids=lambda row: row[0])
def test_stated_defaults_are_the_real_ones_and_the_papers(row: list[str]):
    name, paper, field, default = row
    if default == "fixed":
        assert name in ("optimizer", "activation function")  # the next two tests
        return
    assert field_default(field.strip("`")) == ast.literal_eval(default)
    if paper != "last two":
        assert ast.literal_eval(default) == ast.literal_eval(paper)


def test_the_optimiser_is_adam():
    """Adam's first step is the learning rate times the sign of the gradient, whatever the gradient's size."""
    agent = FAC(learning_rate=0.1)
    grads = jnp.array([5.0, -0.02])
    optimiser = agent._actor_optimiser()
    step, _ = optimiser.update(grads, optimiser.init(grads))
    np.testing.assert_allclose(step, [-0.1, 0.1], rtol=1e-4)


def test_the_activation_is_relu():
    network = MLP(3, (50,), 2, key=jax.random.key(0))
    obs = jnp.array([1.0, -2.0, 0.5])
    linear = np.asarray(network.layers[0](obs))
    assert (linear < 0).any()
    np.testing.assert_array_equal(network.activations(obs)[0], np.maximum(linear, 0))


DATA_FIELDS = ("warmup", "warmup_actions", "replay", "normalize", "recency")


def own_fields(kind: type, above: type | None = None) -> list[str]:
    """Fields that a dataclass has and its parent has not."""
    inherited = {field.name for field in dataclasses.fields(above)} if above else set()
    return [field.name for field in dataclasses.fields(kind) if field.name not in inherited]


@pytest.mark.parametrize(
    "name",
    [f"fcritic.agents.fac.FAC.{field.name}" for field in dataclasses.fields(FAC)]
    + [f"fcritic.networks.actor_encoder.EncoderConfig.{field.name}" for field in dataclasses.fields(EncoderConfig)]
    + [f"fcritic.agents.critic_ensemble.CriticEnsembleAgent.{name}" for name in own_fields(CriticEnsembleAgent)]
    + [f"fcritic.agents.sac.SAC.{name}" for name in own_fields(SAC, CriticEnsembleAgent)]
    + [f"fcritic.agents.td3.TD3.{name}" for name in own_fields(TD3, CriticEnsembleAgent)]
    + [f"fcritic.config.TrainConfig.{name}" for name in DATA_FIELDS],
)
def test_no_option_is_undocumented(name: str):
    assert f"`{name}`" in PAPER + DESIGN + BASELINES
