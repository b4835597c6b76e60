"""Traced programs, kept on disk beside the compiled ones.

JAX keeps what it has compiled, but finds it by the program, which has to be traced and lowered first: seconds of
Python for an update of functional critics. Here a program is traced into StableHLO by `jax.export`, and the next
process that needs the same one reads that. Whether it was traced or read, the same StableHLO is compiled: a first
start, a second one and a machine that keeps nothing train alike, bit for bit.
"""

from collections.abc import Callable
import dataclasses
import hashlib
import os
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
from jax import export
import jaxlib
import numpy as np
import optax

from fcritic import kernels
from fcritic.disk import replace_file

SWITCH = "FCRITIC_KEEP_PROGRAMS"
"""This environment variable says whether programs are read and written. The command `fcritic` sets it to `yes`
unless it is set: a user's script may have changed our functions, which no file would show."""

FOLDER = "traced"
"""Its name in the folder in which JAX keeps compiled programs."""

_SETTINGS = (
    "jax_enable_x64",
    "jax_default_matmul_precision",
    "jax_default_prng_impl",
    "jax_threefry_partitionable",
    "jax_random_seed_offset",
    "jax_numpy_dtype_promotion",
)
# What is kept is read by the same version of JAX only, so that no operation needs to be a stable one.
_ANY_OPERATION = (export.DisabledSafetyCheck.custom_call("ALL"),)
_DIGEST = hashlib.sha256().digest_size


def call(function: Callable[..., tuple], decided_by: tuple[Any, ...], *arguments: Any) -> tuple:
    """What a function of (tuples of) arrays returns, a tuple of arrays; to be called while JAX traces.

    `decided_by` names the function and all that decides its program besides the shapes of the arguments.
    """
    shapes = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), arguments)
    path = _path(decided_by, shapes)
    program = None if path is None else _read(path)
    if program is None:
        try:
            program = export.export(jax.jit(function), disabled_checks=_ANY_OPERATION)(*shapes)
        except Exception:  # some functions cannot be exported; an error of this one is raised below
            return function(*arguments)
        if path is not None:
            _write(path, program)
    return program.call(*arguments)


def _path(decided_by: tuple[Any, ...], shapes: Any) -> Path | None:
    """The file of a program; none where it cannot be kept."""
    folder = jax.config.jax_compilation_cache_dir  # pyright: ignore[reportAttributeAccessIssue]
    cached = jax.config.jax_enable_compilation_cache  # pyright: ignore[reportAttributeAccessIssue]
    wanted = os.environ.get(SWITCH) == "yes" and cached
    if not (wanted and folder and all(map(_is_ours, decided_by))):
        return None
    if _IMPORTED is None:
        return None
    facts = (_IMPORTED, *map(str, decided_by), str(shapes), *_surroundings())
    return Path(folder) / FOLDER / hashlib.sha256("\n".join(facts).encode()).hexdigest()


def _is_ours(part: Any) -> bool:
    """Whether its text and our sources determine a part: a class from elsewhere may do anything."""
    if not dataclasses.is_dataclass(part):
        return True
    ours = type(part).__module__.partition(".")[0] == __name__.partition(".")[0]
    return ours and all(_is_ours(getattr(part, field.name)) for field in dataclasses.fields(part))


def _surroundings() -> tuple[str, ...]:
    """What else a program depends on: versions, the device, settings of JAX and of ours."""
    versions = [module.__version__ for module in (jax, jaxlib, eqx, optax, np)]
    device = (jax.default_backend(), jax.devices()[0].device_kind, os.environ.get("XLA_FLAGS"))
    settings = [f"{name}={getattr(jax.config, name)}" for name in _SETTINGS]
    return (*versions, *map(str, device), *settings, str(kernels.INTERPRET))


def _sources(folder: Path = Path(__file__).parents[1]) -> str | None:
    """A hash of all our code; none where it is not in files."""
    found = hashlib.sha256()
    try:
        paths = sorted(folder.rglob("*.py"))
        for path in paths:
            found.update(f"{path.relative_to(folder)} {hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    except OSError:
        return None
    return found.hexdigest() if paths else None


_IMPORTED = _sources()
"""The sources at the start: what is traced later is what was imported then, whatever has been edited since."""


def _read(path: Path) -> export.Exported | None:
    """The program of a file; none where it is not there, or not as it was written."""
    try:
        kept = path.read_bytes()
        digest, program = kept[:_DIGEST], bytearray(kept[_DIGEST:])
        return export.deserialize(program) if hashlib.sha256(program).digest() == digest else None
    except Exception:  # whatever it is, the program can be traced again
        return None


def _write(path: Path, program: export.Exported) -> None:
    """Best effort: a disk that is full or cannot be written means that the next start traces again."""
    if _sources() != _IMPORTED:  # some modules may have been imported after the change
        return
    try:
        content = bytes(program.serialize())
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, hashlib.sha256(content).digest() + content)
    except Exception:  # JAX has many words for what it cannot serialise
        return
