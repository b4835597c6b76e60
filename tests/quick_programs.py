"""Programs that a test runs a few times, compiled in a fifth of the time: XLA's work on their speed is left out.

For values that are compared within rounding, and for what an update must not change, to the last bit. Programs of a
training, whose bits must repeat, are compiled at XLA's usual level.
"""

from functools import partial

import jax
import jaxlib

OPTIONS = {"xla_backend_optimization_level": 0}
if jaxlib.__version__.startswith("0.10."):  # later ones do not know it, and refuse what they do not know
    OPTIONS["xla_cpu_use_fusion_emitters"] = False

quick_jit = partial(jax.jit, compiler_options=OPTIONS)

# Compiled once per agent for all files.
critic_step = quick_jit(lambda agent, *rest: agent.critic_step(*rest), static_argnums=0)
actor_step = quick_jit(lambda agent, *rest: agent.actor_step(*rest), static_argnums=0)
