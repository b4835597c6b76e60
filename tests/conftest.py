"""Shapes are checked at run time in the whole package while tests run."""

import gc
from importlib.metadata import version
import os
from pathlib import Path
import sys

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # as the command `fcritic` has it
os.environ["FCRITIC_KEEP_PROGRAMS"] = "no"  # tests change what functions do, which must not outlive them
if not any("test_gpu" in argument for argument in sys.argv):  # alone it may use what there is
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    # The programs that users have, without XLA's work on their speed: compiled in a third to two thirds.
    # What XLA_FLAGS says wins, for example XLA_FLAGS=--xla_backend_optimization_level=3.
    os.environ["XLA_FLAGS"] = f"--xla_backend_optimization_level=0 {os.environ.get('XLA_FLAGS', '')}".strip()
    if version("jaxlib").startswith("0.10."):  # another emitter; later versions refuse what they do not know
        os.environ["XLA_FLAGS"] = f"--xla_cpu_use_fusion_emitters=false {os.environ['XLA_FLAGS']}"

from jaxtyping import install_import_hook

install_import_hook("fcritic.networks", "beartype.beartype")
install_import_hook("fcritic.agents", "beartype.beartype")

import jax  # noqa: E402
import pytest  # noqa: E402

from fcritic.agents.fac import FAC  # noqa: E402
from fcritic.networks.actor_encoder import EncoderConfig  # noqa: E402
from fcritic.startup.backend import prepare  # noqa: E402
from fcritic.types import EnvSpec, Transition  # noqa: E402

pytest_plugins = ["tiers"]

pytest.register_assert_rewrite("sick_vectors", "viewer_pages")  # a failure in them tells its values, too
jax.config.update("jax_numpy_rank_promotion", "raise")
prepare()

MOST_MAPPINGS = 20_000
"""Of memory, in one process; Linux allows 65,530 of them, and each compiled program takes several."""


@pytest.fixture(autouse=True, scope="module")
def forget_programs():
    """A process that kept the programs of all tests would need 6 GB, and more mappings than it may have."""
    yield
    mappings = Path("/proc/self/maps")
    if mappings.exists() and mappings.read_bytes().count(b"\n") > MOST_MAPPINGS:
        jax.clear_caches()
        gc.collect()


@pytest.fixture(scope="session")
def spec() -> EnvSpec:
    return EnvSpec(obs_dim=3, act_dim=2)


@pytest.fixture(scope="session")
def tiny() -> FAC:
    """The smallest agent that has every part."""
    return FAC(
        members=3,
        batch_size=5,
        actor_hidden=(8, 6),
        state_action_hidden=(7,),
        state_action_code=4,
        joint_hidden=(6,),
        encoder=EncoderConfig(probes=5, depth=1, code=4, width=8, heads=2),
    )


@pytest.fixture
def batch(spec: EnvSpec) -> Transition:
    """Five transitions, of which the second ends its task."""
    keys = jax.random.split(jax.random.key(7), 4)
    size = 5
    return Transition(
        jax.random.normal(keys[0], (size, spec.obs_dim)),
        jax.random.uniform(keys[1], (size, spec.act_dim), minval=-1.0),
        jax.random.normal(keys[2], (size,)),
        jax.numpy.array([1.0, 0.0, 1.0, 1.0, 1.0]),
        jax.random.normal(keys[3], (size, spec.obs_dim)),
    )
