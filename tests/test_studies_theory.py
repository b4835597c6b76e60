"""Studies of the theory: small ones find the terms of the bound."""

import numpy as np
import pytest

from fcritic.study.catalog import load
from fcritic.theory.problems import idle_behaviour

load("theorem-1")
from studies.theory import theorem_1  # noqa: E402
from studies.theory.control import slope  # noqa: E402


def test_the_slope_of_a_power_is_its_exponent():
    x = np.array([1.0, 2.0, 5.0])
    assert slope(x, 3 * x**-1.5) == pytest.approx(-1.5)


def test_small_studies_find_the_terms_of_the_bound():
    outer = theorem_1.outer_study(2, 30)
    assert outer["largest_share_of_bound"] <= 1 + 1e-9
    assert outer["identity_gap"] < 1e-10
    injected = theorem_1.approximation_study(np.array([0.01, 0.1]), 1, 100)
    assert (injected["squared_error"] <= injected["bound"]).all()
    assert slope(injected["injected"][0] ** 2, injected["squared_error"][0]) == pytest.approx(1, abs=0.25)
    plateau = theorem_1.plateau_study(200)
    assert np.isinf(plateau["coverage"])
    assert plateau["uncovered"][-1] > 1
    assert plateau["covered"][-1] < 1e-12


def test_least_squares_errors_grow_with_coverage():
    small, large = (theorem_1.task_of(idle_behaviour(share)) for share in (0.5, 0.05))
    errors = [theorem_1._least_squares(task, 2000, 20, 80).mean() for task in (small, large)]
    ratio = theorem_1.task_coverage(large) / theorem_1.task_coverage(small)
    assert errors[1] / errors[0] == pytest.approx(ratio, rel=0.5)
