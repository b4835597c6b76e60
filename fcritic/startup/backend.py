"""How JAX is set up before it is used: compiled programs are kept, GPU work is queued as one graph, and two slow
paths of the CPU are avoided."""

from contextlib import AbstractContextManager, nullcontext, suppress
import functools
import importlib.util
import os
from pathlib import Path
import sys
import threading
import types

import jax
import jaxlib
import numpy as np

# XLA's CPU backend hands layer norms and their gradients to a library that is slower than its own code:
# one iteration of `fac-small` took 52 ms with it and 34 ms without, on 2 cores. Naming a kind of operation
# that these networks do not have turns it off.
_NO_SLOW_FUSION = "--xla_cpu_experimental_ynn_fusion_type=LIBRARY_FUSION_TYPE_INDIVIDUAL_CONVOLUTION"
# On a GPU an iteration is some thousand short operations. As a CUDA graph, loops included, they need not be
# launched one by one, and those that do not depend on each other run side by side: `sac+` with 4 seeds on an
# H200 took 3.4 ms without graphs, 2.5 with and 1.95 with both.
_GRAPHED = "FUSION,CUBLAS,CUBLASLT,CUDNN,CUSTOM_CALL,DYNAMIC_SLICE_FUSION,WHILE,CONDITIONAL"
_WHOLE_GRAPH = f"--xla_gpu_enable_command_buffer={_GRAPHED}"
_SIDE_BY_SIDE = "--xla_gpu_command_buffer_scheduling_mode=CONCURRENT"
# Left to itself XLA has a product and the sum after it rounded one by one, in kernels of ours too: two instructions
# for one. What lies between the products of a functional critic is bound by instructions.
_ROUNDED_ONCE = "--xla_backend_extra_options=--nvptx-fma-level=2"
_FLAGS = (_NO_SLOW_FUSION, _WHOLE_GRAPH, _SIDE_BY_SIDE)
_CUDA_PLUGINS = ("jax_cuda12_plugin", "jax_cuda13_plugin")
# An unknown flag would end the process, hence the versions.
_KNOWN_VERSIONS = ("0.10.", "0.11.", "0.12.")

# Excludes operations that add in an order of their own, and the choice of kernels by timing them.
_DETERMINISTIC = "--xla_gpu_deterministic_ops=true"

_TRITON_DIALECT = "jaxlib.mlir.dialects.tt"


def prepare(deterministic: bool = False) -> None:
    """Sets JAX up for a process of ours; call it before the first computation, which fixes the flags."""
    if jaxlib.__version__.startswith(_KNOWN_VERSIONS):
        given = os.environ.get("XLA_FLAGS", "")
        wanted = (*_FLAGS, *[_DETERMINISTIC] * deterministic, *[_ROUNDED_ONCE] * _cuda_is_installed())
        added = [flag for flag in wanted if flag.split("=")[0] not in given]  # what the user sets, wins
        os.environ["XLA_FLAGS"] = " ".join([given, *added]).strip()
    if jax.config.jax_compilation_cache_dir is None:  # pyright: ignore[reportAttributeAccessIssue]
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fcritic" / "jax"
        jax.config.update("jax_compilation_cache_dir", str(cache))
        # JAX by itself keeps only what takes a second to compile; a start needs many programs that take less.
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)
    _end_vain_searches()


def _cuda_is_installed() -> bool:
    """Whether there may be a GPU of NVIDIA; elsewhere options of its compiler are unknown, which ends a process."""
    platforms = os.environ.get("JAX_PLATFORMS", "")
    wanted = not platforms or "cuda" in platforms or "gpu" in platforms
    return wanted and any(importlib.util.find_spec(name) is not None for name in _CUDA_PLUGINS)


def _end_vain_searches() -> None:
    """An empty module for Triton's dialect, which jaxlib lacks and searches for at each of its operations.

    An update of `fac-shared` has 5,648 of them, and half of the time to lower it went into these searches.
    """
    with suppress(ImportError):
        if _TRITON_DIALECT not in sys.modules and importlib.util.find_spec(_TRITON_DIALECT) is None:
            sys.modules[_TRITON_DIALECT] = types.ModuleType(_TRITON_DIALECT)


@functools.cache
def wake_device() -> None:
    """Begins to set up the device in a thread, once: that takes seconds on a GPU, in which others can import."""

    def wake() -> None:
        # An error of the device is raised again in the thread that first uses it.
        with suppress(Exception):
            jax.block_until_ready(jax.device_put(np.zeros(1, np.float32)))

    threading.Thread(target=wake, name="waking the device").start()


def small_operations_on_the_host() -> AbstractContextManager:
    """Thousands of tiny operations, as in the making of first parameters, without a launch on the GPU for each."""
    if jax.default_backend() == "cpu":
        return nullcontext()
    try:
        return jax.default_device(jax.local_devices(backend="cpu")[0])
    except RuntimeError:  # JAX_PLATFORMS names the GPU alone
        return nullcontext()
