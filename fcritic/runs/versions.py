"""The software and hardware of a run: versions of packages, the device, the commit of these sources."""

import importlib.metadata
import os
from pathlib import Path
import platform
import subprocess

import jax

PACKAGES = ["fcritic", "jax", "jaxlib", "equinox", "optax", "mujoco", "dm_control", "gymnasium", "numpy"]


def versions() -> dict[str, str | None]:
    """Returns what results may depend on besides the configuration; None where that is unknown."""
    found: dict[str, str | None] = {"python": platform.python_version(), "platform": platform.platform()}
    for package in PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[package] = None
    try:
        found["device"] = jax.devices()[0].device_kind
    except RuntimeError:  # a broken accelerator is for the training to report
        found["device"] = None
    found["cpu"] = _cpu()
    found["xla_flags"] = os.environ.get("XLA_FLAGS") or None
    found["matmul_precision"] = getattr(jax.config, "jax_default_matmul_precision")  # noqa: B009
    return found | {"git": _git_hash()}


def _cpu() -> str | None:
    """The kind of CPU and its widest instructions: with others, sums are added in another order."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:  # not Linux
        return platform.processor() or None
    facts = dict(line.partition(":")[::2] for line in reversed(lines) if ":" in line)
    facts = {name.strip(): value.strip() for name, value in facts.items()}
    flags = set(facts.get("flags", facts.get("Features", "")).split())
    widest = next((flag for flag in ("avx512f", "avx2", "avx", "asimd") if flag in flags), "")
    return f"{facts.get('model name', platform.machine())} {widest}".strip()


def _git_hash() -> str | None:
    """The commit of these sources, with ``-dirty`` after changes; none outside a repository."""
    git = ["git", "--no-optional-locks", "-C", str(Path(__file__).parents[1])]
    ask = lambda task: subprocess.check_output(git + task.split(), stderr=subprocess.DEVNULL, timeout=5).decode()
    try:
        # An installed copy may lie inside some other repository, whose commit would mean nothing.
        ask("ls-files --error-unmatch errors.py")
        # Not `describe --dirty`: it locks the index all the same, and a git that is killed leaves the lock behind.
        dirty = ask("status --porcelain --untracked-files=no")
        return ask("rev-parse HEAD").strip() + ("-dirty" if dirty else "")
    except (OSError, subprocess.SubprocessError):
        return None
