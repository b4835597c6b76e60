"""Parameters that learn: what is trained, with the state of its optimiser."""

from typing import Any

import equinox as eqx
import jax
from jax.experimental.layout import Layout, with_layout_constraint
import numpy as np
import optax

from fcritic.kernels.packing import pack_like
from fcritic.networks.precision import on_gpu


class Learner(eqx.Module):
    """Parameters and the state of their optimiser."""

    params: Any
    opt_state: Any

    @staticmethod
    def start(params: Any, optimiser: optax.GradientTransformation) -> "Learner":
        """Parameters that have not been trained yet; the state of every optimiser here begins with zeros.

        They are made on the host: `optimiser.init` itself would compile a program for each shape of a parameter. It
        is asked once, with an empty array for the parameters: where that comes back, they have their moments, which
        are NumPy's until they are handed over with all else (`fcritic.training.device.Learning.start`).
        """
        zeros = lambda leaf: np.zeros(leaf.shape, leaf.dtype)
        form = jax.eval_shape(optimiser.init, np.zeros(0, np.float32))
        moments = lambda leaf: jax.tree.map(zeros, params) if leaf.shape == (0,) else zeros(leaf)
        return Learner(params, jax.tree.map(moments, form))

    def apply(self, grads: Any, optimiser: optax.GradientTransformation) -> "Learner":
        """One step of the optimiser, downhill."""
        grads = pack_like(self.params, row_major(grads))
        updates, opt_state = optimiser.update(grads, self.opt_state, self.params)
        return Learner(optax.apply_updates(self.params, updates), opt_state)


def row_major(grads: Any) -> Any:
    """Gradients in the order of memory that the parameters have.

    A GPU's compiler may choose another order for the gradient of a weight. Parameters, moments and targets would
    follow it inside the loop over critic updates, and be transposed and copied in each of them.
    """
    if not on_gpu():
        return grads
    return jax.tree.map(lambda leaf: with_layout_constraint(leaf, Layout(tuple(range(leaf.ndim)))), grads)
