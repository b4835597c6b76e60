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


def prepare() -> None:
    """Sets JAX up for a process of ours; call it before the first computation."""
    flags = os.environ.get("XLA_FLAGS", "")
    if jaxlib.__version__.startswith(_SLOW_FUSION_VERSIONS) and "ynn_fusion_type" not in flags:
        os.environ["XLA_FLAGS"] = f"{flags} {_NO_SLOW_FUSION}".strip()
    if jax.config.jax_compilation_cache_dir is None:
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fcritic" / "jax"
        jax.config.update("jax_compilation_cache_dir", str(cache))
