"""dm_control's tolerance, from which most rewards of its suite are made, for single numbers.

It is written for arrays, and makes half a dozen of them for one number: a third of a step of `cheetah-run`.
"""

import functools
from types import ModuleType

import numpy as np


def shorten_tolerance(rewards: ModuleType) -> None:
    """Gives dm_control's module of rewards a short way for single numbers; results are the same to the last bit.

    A sigmoid that does not exist is noticed only outside of the bounds, where it is needed.
    """
    of_arrays, sigmoid_of = rewards.tolerance, rewards._sigmoids
    usual = rewards._DEFAULT_VALUE_AT_MARGIN

    @functools.wraps(of_arrays)
    def tolerance(x, bounds=(0.0, 0.0), margin=0.0, sigmoid="gaussian", value_at_margin=usual):
        lower, upper = bounds
        if type(x) is not np.float64 or lower > upper or margin < 0:
            return of_arrays(x, bounds, margin, sigmoid, value_at_margin)
        if lower <= x <= upper:
            return 1.0
        if margin == 0:
            return 0.0
        distance = lower - x if x < lower else x - upper
        return float(sigmoid_of(distance / margin, value_at_margin, sigmoid))

    rewards.tolerance = tolerance
