"""Checks of what environments answer. A wrong type must not become a number by some conversion."""

from collections.abc import Iterable
import math
import re
import traceback
from typing import Any

import numpy as np

from fcritic.envs.base import Step
from fcritic.envs.group import Board, Trouble

ANSWERS = {"reset": ("observation", "info"), "step": ("observation", "reward", "terminated", "truncated", "info")}
"""What Gymnasium's methods return."""

LARGEST = float(np.finfo(np.float32).max)
"""Rewards are stored in single precision, where larger ones would become infinite."""


class WrongAnswer(TypeError):
    """An answer of a wrong type or shape. The message names the field."""


def numbers(field: str, values: Any, shape: tuple[int, ...]) -> np.ndarray:
    """`values` as an array, where they are real numbers of this shape."""
    if type(values) is not np.ndarray:
        try:
            array = np.asarray(values)
        except ValueError as error:  # lists of different lengths
            raise WrongAnswer(f"{field} is {_short(values)}, not an array of numbers") from error
    else:
        array = values
    if array.dtype.kind not in "fiub":
        raise WrongAnswer(f"{field} is {_short(values)}, not an array of numbers")
    if array.shape != shape:
        raise WrongAnswer(f"{field} has shape {array.shape}, not {shape}")
    return array


def number(field: str, value: Any) -> float:
    """`value` as a float, where it is a real number."""
    if isinstance(value, float):  # also NumPy's float64
        return float(value)
    kind = getattr(getattr(value, "dtype", None), "kind", "")
    if not (isinstance(value, int) or (kind and kind in "fiub" and np.ndim(value) == 0)):
        raise WrongAnswer(f"{field} is {_short(value)}, not a number")
    return float(value)


def truth(field: str, value: Any) -> bool:
    """`value` as a bool, where it is one."""
    if value is True or value is False:
        return value
    if getattr(getattr(value, "dtype", None), "kind", "") != "b" or np.ndim(value) != 0:
        raise WrongAnswer(f"{field} is {_short(value)}, not True or False")
    return bool(value)


def parts(what: str, answer: Any, names: tuple[str, ...]) -> tuple:
    """`answer` where it is a tuple with as many parts as there are `names`."""
    if not isinstance(answer, tuple) or len(answer) != len(names):
        got = f"{len(answer)} values" if isinstance(answer, tuple) else _short(answer)
        raise WrongAnswer(f"{what} returned {got}, not ({', '.join(names)})")
    return answer


_UNPACKED = re.compile(r"(not enough|too many) values to unpack|cannot unpack non-iterable (\w+)")
_WRAPPERS = re.compile(r"[/\\]gymnasium[/\\](?!envs[/\\])")


def behind_wrappers(error: BaseException) -> WrongAnswer | None:
    """What the environment's own method answered, where one of Gymnasium's wrappers could not take it apart."""
    found = _UNPACKED.search(str(error)) if isinstance(error, ValueError | TypeError) else None
    frames = traceback.extract_tb(error.__traceback__)
    if found is None or not frames or frames[-1].name not in ANSWERS or not _WRAPPERS.search(frames[-1].filename):
        return None
    names = ANSWERS[frames[-1].name]
    count = re.search(r"got (\d+)", str(error))
    got = f"{count[1]} values" if count else f"a {found[2]}" if found[2] else f"more than {len(names)} values"
    return WrongAnswer(f"the environment's own {frames[-1].name} returned {got}, not ({', '.join(names)})")


def write_step(board: Board, row: int, answer: Step) -> bool:
    """Writes an answer on the board and returns whether its episode is over."""
    if type(answer) is not Step:
        parts("step", answer, Step._fields)
    obs, reward, discount, last = answer
    into = board.next_obs[row]
    into[:] = numbers("observation", obs, into.shape)
    board.reward[row] = reward if type(reward) is float else number("reward", reward)
    discount = number("discount", discount)
    if not 0.0 <= discount <= 1.0:
        raise WrongAnswer(f"discount is {discount}, not between 0 and 1")
    board.discount[row] = discount
    last = board.last[row] = last if type(last) is bool else truth("last", last)
    return last


def success_in(info: Any) -> float:
    """Returns the success of an episode from Gymnasium's infos of the last step, 1 or 0; NaN where they lack it.

    By convention this is `is_success`, or `success` in older environments.
    """
    for name in ("is_success", "success"):
        value = info.get(name) if isinstance(info, dict) else None
        if isinstance(value, bool | int | float | np.generic | np.ndarray) and np.ndim(value) == 0:
            found = float(value) if np.asarray(value).dtype.kind in "fiub" else math.nan
            if 0.0 <= found <= 1.0:
                return found
    return math.nan


def sound(board: Board) -> bool:
    """Whether all rows have numbers that can be used; where not, `judge_step` looks closer."""
    return bool(
        np.isfinite(board.next_obs).all()
        and (np.abs(board.reward) <= LARGEST).all()
        and (not board.last.any() or np.isfinite(board.first_obs).all())
    )


def judge_step(board: Board, rows: Iterable[int]) -> list[Trouble]:
    """The rows whose last step has numbers that cannot be used."""
    rows = np.fromiter(rows, np.intp)
    reward, obs = board.reward[rows], board.next_obs[rows]
    seen: Any = np.isfinite(obs).all(axis=1)
    found = []
    for index in np.flatnonzero(~(seen & (np.abs(reward) <= LARGEST))):
        what = f"reward is {reward[index]}" if seen[index] else describe("observation", obs[index])
        found.append(Trouble(int(rows[index]), "step", what))
    bad = {trouble.row for trouble in found}
    return found + judge_first(board, (row for row in rows[board.last[rows]] if row not in bad))


def judge_first(board: Board, rows: Iterable[int]) -> list[Trouble]:
    """The rows whose first observation has numbers that cannot be used."""
    rows = np.fromiter(rows, np.intp)
    bad = rows[~np.isfinite(board.first_obs[rows]).all(axis=1)]
    return [Trouble(int(row), "reset", describe("observation", board.first_obs[row])) for row in bad]


def describe(field: str, values: np.ndarray) -> str:
    """The first number that is not finite: ``observation[3] is nan``."""
    index = int(np.argmin(np.isfinite(values)))
    return f"{field}[{index}] is {values[index]}"


def _short(value: Any) -> str:
    text = " ".join(repr(value).split())
    text = text if len(text) <= 60 else f"{text[:57]}..."
    return text if value is None else f"{text} ({type(value).__name__})"
