"""How much arithmetic a program does: counted in the program itself, not by a formula beside it."""

from collections.abc import Callable
import math
from typing import Any

import jax
from jax.extend import core


def count_flops(function: Callable, *args: Any) -> int:
    """Floating-point operations of all matrix products in one call; arguments may be shapes.

    Element-wise work is left out: it costs memory traffic rather than arithmetic.
    """
    return _count(jax.make_jaxpr(function)(*args).jaxpr)


def _count(jaxpr: core.Jaxpr) -> int:
    total = 0
    for equation in jaxpr.eqns:
        if equation.primitive.name == "dot_general":
            total += _product(equation)
            continue
        times = equation.params["length"] if equation.primitive.name == "scan" else 1
        inner = [_count(sub) for sub in _inner_programs(equation.params)]
        # Only one branch of a conditional runs; the most expensive one is the honest bound.
        total += times * (max(inner, default=0) if equation.primitive.name == "cond" else sum(inner))
    return total


def _product(equation: core.JaxprEqn) -> int:
    (contracted, _), _ = equation.params["dimension_numbers"]
    left = equation.invars[0].aval.shape
    return 2 * math.prod(equation.outvars[0].aval.shape) * math.prod(left[axis] for axis in contracted)


def _inner_programs(params: dict[str, Any]) -> list[core.Jaxpr]:
    found = []
    for value in params.values():
        for item in value if isinstance(value, (tuple, list)) else (value,):
            if isinstance(item, core.ClosedJaxpr):
                found.append(item.jaxpr)
            elif isinstance(item, core.Jaxpr):
                found.append(item)
    return found
