"""docs/paper.md states the paper's numbers and the real defaults, and every option has a meaning."""

import ast
import importlib.util

import jax
import jax.numpy as jnp
import numpy as np
from paper_pages import DOCS, resolve, table

from fcritic.agents.base import options_of
from fcritic.agents.fac import FAC
from fcritic.agents.recipes import RECIPES
from fcritic.networks.mlp import MLP

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


def field_default(name: str) -> object:
    owner, _, field = name.rpartition(".")
    return resolve(owner).__dataclass_fields__[field].default


def test_every_hyperparameter_has_its_row_with_the_papers_value():
    stated = {row[0]: row[1] for row in table("Hyperparameters")}
    assert {name: stated.get(name) for name in HYPERPARAMETERS} == HYPERPARAMETERS
    assert stated.keys() == HYPERPARAMETERS.keys()


def test_stated_defaults_are_the_real_ones_and_the_papers():
    for name, paper, field, default in table("Hyperparameters"):
        if default == "fixed":
            assert name in ("optimizer", "activation function")  # the next two tests
            continue
        assert field_default(field.strip("`")) == ast.literal_eval(default), name
        if paper != "last two":
            assert ast.literal_eval(default) == ast.literal_eval(paper), name


def test_the_optimiser_is_adam():
    """Adam's first step is the learning rate times the sign of the gradient, whatever the gradient's size."""
    agent = FAC(learning_rate=0.1)
    grads = jnp.array([5.0, -0.02])
    optimiser = agent.optimiser()
    step, _ = optimiser.update(grads, optimiser.init(grads))
    np.testing.assert_allclose(step, [-0.1, 0.1], rtol=1e-4)


def test_the_activation_is_relu():
    network = MLP(3, (50,), 2, key=jax.random.key(0))
    obs = jnp.array([1.0, -2.0, 0.5])
    linear = np.asarray(network.layers[0](obs))
    assert (linear < 0).any()
    np.testing.assert_array_equal(network.activations(obs)[0], np.maximum(linear, 0))


def test_every_option_has_a_docstring_with_its_meaning():
    spec = importlib.util.spec_from_file_location("options", DOCS / "options.py")
    options = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(options)
    for _, kind, prefix in options.sections():
        for option, _, meaning in options.rows(kind, prefix):
            assert len(meaning) > 10, option
    page = options.page()
    for agent, _ in RECIPES.values():
        for option in options_of(agent):
            assert f"| `--{option.replace('_', '-')}` |" in page, option
    assert "| `--learning-rate` | 0.0003 | Learning rate of Adam for actors and critics (Table 1). |" in page
    assert "`--encoder.shared`" in page.split("| `fac-shared` |")[1].splitlines()[0]
