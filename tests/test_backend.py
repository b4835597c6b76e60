"""How JAX is set up before it is used."""

import subprocess
import sys

import pytest

from fcritic.startup import backend

LOWER_A_KERNEL = """
import sys
from fcritic.startup.backend import prepare
if sys.argv[1] == "prepared":
    prepare()
import jax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton
import jax.numpy as jnp

searched = []

class Spy:
    def find_spec(self, name, path=None, target=None):
        searched.append(name)

def double(x, out):
    out[...] = 2 * x[...]

rows = jax.ShapeDtypeStruct((128, 128), jnp.float32)
program = jax.jit(pl.pallas_call(double, out_shape=rows, compiler_params=triton.CompilerParams())).trace(rows)
sys.meta_path.insert(0, Spy())
program.lower(lowering_platforms=("cuda",))
print(searched.count("jaxlib.mlir.dialects.tt"))
"""


def searches(how: str) -> int:
    """How often lowering a small kernel for a GPU searches for the module that jaxlib does not have."""
    command = [sys.executable, "-c", LOWER_A_KERNEL, how]
    done = subprocess.run(command, capture_output=True, text=True)
    if "No supported GPU devices found" in done.stderr:
        pytest.skip("from JAX 0.12 on no kernel is lowered where there is no GPU")
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


def test_lowering_a_kernel_searches_for_no_module_in_vain():
    assert searches("plain") > 5  # else jaxlib has changed, and the empty module can go
    assert searches("prepared") == 0


@pytest.mark.parametrize(
    ("plugin", "platforms", "given"), [(True, "", 1), (True, "cuda,cpu", 1), (True, "cpu", 0), (False, "", 0)]
)
def test_options_of_a_compiler_go_only_where_it_may_be(monkeypatch, plugin, platforms, given):
    """Elsewhere the CPU's compiler would end the process at an option that it does not know."""
    monkeypatch.setenv("XLA_FLAGS", "")
    monkeypatch.setenv("JAX_PLATFORMS", platforms)
    found = lambda name: object() if plugin and name == "jax_cuda13_plugin" else None
    monkeypatch.setattr(backend.importlib.util, "find_spec", found)
    backend.prepare()
    assert backend.os.environ["XLA_FLAGS"].count("nvptx") == given
