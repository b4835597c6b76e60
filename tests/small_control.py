"""A small linear MDP to be controlled, for the tests of Algorithm 3 and of its gradients."""

import numpy as np
import pytest

from fcritic.theory.control import Control, TabularSoftmax
from fcritic.theory.problems import linear_mdp, uniform_policy

STATES, ACTIONS, DIM = 5, 2, 3
THETA = np.zeros(STATES * ACTIONS)


@pytest.fixture(scope="module")
def problem() -> Control:
    mdp, features = linear_mdp(3, STATES, ACTIONS, DIM, gamma=0.8)
    first = uniform_policy(mdp)
    policy = TabularSoftmax(STATES, ACTIONS)
    return Control(mdp, features.whitened(mdp, first), policy, mdp.stationary(first))
