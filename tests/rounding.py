"""How far two float32 computations of the same number may lie apart.

CPUs add in different orders, so the last bits differ, by an amount that follows from the number of operations. A
tolerance relative to the single number fails where terms cancel and it is near zero.
"""

import numpy as np

UNIT = 2.0**-24
"""The largest relative error of one float32 operation."""


def assert_equal_but_for_rounding(found, expected, operations: int, magnitude: float = 1.0) -> None:
    """Compares two computations, each a chain of so many operations on numbers up to this magnitude."""
    np.testing.assert_allclose(found, expected, rtol=0, atol=2 * operations * UNIT * magnitude)
