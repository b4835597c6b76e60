"""How JAX is set up before it is used: compiled programs are kept, and one slow path is avoided."""

import os
from pathlib import Path

import jax
import jaxlib

# XLA's CPU backend hands layer norms and their gradients to a library that is slower than its own code:
# one iteration of `fac-small` took 52 ms with it and 34 ms without, on 2 cores. Naming a kind of operation
# that these networks do not have turns it off. An unknown flag would end the process, hence the versions.
_SLOW_FUSION_VERSIONS = ("0.10.", "0.11.", "0.12.")
_NO_SLOW_FUSION = "--xla_cpu_experimental_ynn_fusion_type=LIBRARY_FUSION_TYPE_INDIVIDUAL_CONVOLUTION"


# Excludes operations that add in an order of their own, and the choice of kernels by timing them.
_DETERMINISTIC = "--xla_gpu_deterministic_ops=true"


def prepare(deterministic: bool = False) -> None:
    """Sets JAX up for a process of ours; call it before the first computation, which fixes the flags."""
    if jaxlib.__version__.startswith(_SLOW_FUSION_VERSIONS):
        _add_flag("ynn_fusion_type", _NO_SLOW_FUSION)
    if deterministic:
        _add_flag("xla_gpu_deterministic_ops", _DETERMINISTIC)
    if jax.config.jax_compilation_cache_dir is None:
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fcritic" / "jax"
        jax.config.update("jax_compilation_cache_dir", str(cache))


def _add_flag(name: str, flag: str) -> None:
    """Adds a flag unless the user has set it already."""
    flags = os.environ.get("XLA_FLAGS", "")
    if name not in flags:
        os.environ["XLA_FLAGS"] = f"{flags} {flag}".strip()
