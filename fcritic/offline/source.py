"""What every kind of logged data offers: its sizes and units before it is read, then its rows."""

from collections.abc import Callable
import contextlib
import dataclasses
from typing import Any
import zipfile
import zlib

import numpy as np

from fcritic.envs.base import ActionRange
from fcritic.errors import UsageError, one_line
from fcritic.offline.dataset import BLOCK

Arrays = dict[str, np.ndarray]
"""Room for rows, by the names of a dataset's fields."""


@dataclasses.dataclass(frozen=True, eq=False)
class Source:
    """One source of logged data."""

    name: str
    """As its user named it, for messages."""
    rows: int
    """As many as it has at most."""
    obs_shape: tuple[int, ...] | None
    """Of one observation as the user's policies get it; None where it has several parts, which are flat here."""
    obs_dim: int
    act_shape: tuple[int, ...]
    fill: Callable[[Arrays, "Scale"], int]
    """Writes its rows into the arrays, actions scaled to [-1, 1], and returns how many there are."""
    bounds: tuple[np.ndarray, np.ndarray] | None = None
    """Of the actions, as the source tells them."""
    task: str | None = None
    action_repeat: int | None = None
    arrays: Callable[[], Arrays] | None = None
    """Its rows as they lie in files, where nothing needs to be copied."""


@dataclasses.dataclass(frozen=True, eq=False)
class Scale:
    """From a task's actions to [-1, 1]."""

    actions: ActionRange
    guessed: bool = False
    """Whether nothing tells the bounds: then they are not known to be -1 and 1, and no action may lie outside."""

    def __call__(self, found: np.ndarray, what: str) -> np.ndarray:
        """Returns rows of actions, those outside of known bounds cut as the task does."""
        require_finite(found, what)
        if self.guessed and (most := abs(found).max(initial=0)) > 1 + 1e-4:
            raise UsageError(
                f"{what} reach {most:g}, outside of [-1, 1]; give --task, or their bounds as --action-low "
                "and --action-high"
            )
        return self.actions.unscale(found.reshape(len(found), *self.actions.low.shape))


FAULTS = (
    OSError,
    ValueError,
    LookupError,
    TypeError,
    EOFError,
    RuntimeError,
    zlib.error,
    zipfile.BadZipFile,
    AssertionError,
    AttributeError,
)
"""What libraries raise for files that are damaged."""


@contextlib.contextmanager
def told(what: str) -> Any:
    """Tells whatever goes wrong in reading a file or a field of it in one line."""
    try:
        yield
    except UsageError:
        raise
    except FAULTS as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else one_line(str(error), 200)
        raise UsageError(f"{what} cannot be read: {why or type(error).__name__}") from error


MOST = 1e18
"""Of logged numbers: float32 holds the square of one, but not that of a larger one."""


def require_finite(rows: np.ndarray, what: str) -> None:
    """Refuses NaN and what float32 cannot compute with."""
    with np.errstate(over="ignore", invalid="ignore"):
        bad = ~(np.abs(np.asarray(rows, np.float32)) <= MOST)
    if bad.any():
        place = int(np.flatnonzero(bad.reshape(len(rows), -1).any(axis=1))[0])
        value = np.asarray(rows).reshape(len(rows), -1)[place][bad.reshape(len(rows), -1)[place]][0]
        raise UsageError(f"{what} holds {'NaN' if np.isnan(value) else f'{value:g}'}; remove these episodes")


def require_continuous(dtype: np.dtype, what: str) -> None:
    """Refuses actions that are numbers of choices."""
    if dtype.kind in "iub":
        raise UsageError(f"{what} has discrete actions ({dtype}); only continuous ones (floats) can be judged")
    if dtype.kind != "f":
        raise UsageError(f"{what} is {dtype}, not numbers")


def breaks(obs: np.ndarray, next_obs: np.ndarray) -> np.ndarray:
    """Returns after which rows the next observation is not that of the next row, as within an episode it is."""
    found = np.zeros(len(obs), bool)
    for start in range(0, len(obs) - 1, BLOCK):
        stop = min(start + BLOCK, len(obs) - 1)
        found[start:stop] = (next_obs[start:stop] != obs[start + 1 : stop + 1]).any(axis=1)
    return found
