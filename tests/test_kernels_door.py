"""The door to the kernels."""

import subprocess
import sys

PROGRAM = """
import sys
import jax
from fcritic.agents.base import update
from fcritic.agents.recipes import find_recipe
from fcritic.types import EnvSpec, Transition
agent, spec, key = find_recipe("fac-small"), EnvSpec(3, 2), jax.random.key(0)
state = jax.eval_shape(lambda key: agent.init(spec, key), key)
number = lambda *rest: jax.ShapeDtypeStruct((agent.batches_per_iteration, agent.batch_size, *rest), "float32")
batches = Transition(number(3), number(2), number(), number(), number(3))
jax.eval_shape(lambda *given: update(agent, *given, (True,)), state, batches, key)
print(sorted(name for name in sys.modules if name.startswith(("fcritic.kernels.", "jax.experimental.pallas"))))
"""


def test_a_cpu_loads_no_kernel():
    """Pallas takes long to import, and its versions change fast."""
    found = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "['fcritic.kernels.packing']"
