"""Policies in ONNX files: the first input is a batch of observations, the first output their actions."""

import json
from typing import NamedTuple

import numpy as np

from fcritic.disk import Place
from fcritic.envs.base import Units
from fcritic.errors import UsageError
from fcritic.offline.apart import SECONDS, Apart
from fcritic.offline.candidates import Candidate, require_actions
from fcritic.offline.source import told

LARGEST = 2**30
"""Bytes of a file; ONNX itself ends at twice that."""

PER_ROW = 0.1
"""Seconds of computing for each observation, besides those for an answer."""

UNITS = "actions"
"""The entry of a file's metadata that says in which units its actions are: `task` (the default) or `[-1, 1]`."""

NOISE = "noise"
"""The name of a further input that is filled with standard normal numbers, as in the policies of D4RL."""

KINDS = {"tensor(float)": np.float32, "tensor(double)": np.float64, "tensor(float16)": np.float16}


def of_onnx(name: str, units: Units) -> Candidate:
    """Returns the candidate in an ONNX file."""
    try:
        with told(name), Place.of(name).reading(LARGEST) as file:
            session = Apart("onnx", file)
    except ModuleNotFoundError:
        raise UsageError(
            f"{name} needs a package that is not installed; run: pip install 'fcritic[onnx]'"
        ) from None
    try:
        (inputs, output, metadata), _ = session.ask("describe")
        first, *others = (Input(each, kind, tuple(shape)) for each, kind, shape in inputs)
    except ValueError as error:
        raise UsageError(f"{name} cannot be read as ONNX: {error!s:.200}") from error
    noises = [each for each in others if each.name == NOISE]
    for each in (first, *noises):
        if each.type not in KINDS:
            raise UsageError(f"{name}: its input {each.name} is {each.type}, not a tensor of floats")
    if len(noises) != len(others):
        odd = next(each.name for each in others if each not in noises)
        raise UsageError(f"{name} has a further input {odd}; only a batch of observations can be given")
    said = metadata.get(UNITS, "task")
    if said not in ("task", "[-1, 1]"):
        raise UsageError(f"{name}: its metadata say {UNITS} = {json.dumps(said):.60}; it can be task or [-1, 1]")
    respond = _Session(name, session, output, first, noises, units, said == "task")
    return Candidate(name, "onnx", respond, bool(noises))


class Input(NamedTuple):
    """One of a file's inputs."""

    name: str
    type: str
    shape: tuple[int | None, ...]
    """None for sizes that are left open."""


class _Session:
    """A file that is asked for actions."""

    def __init__(
        self,
        name: str,
        session: Apart,
        output: str,
        first: Input,
        noises: list[Input],
        units: Units,
        in_tasks_units: bool,
    ):
        self._name, self._session, self._output, self._first, self._noises = name, session, output, first, noises
        self._units, self._in_tasks_units = units, in_tasks_units
        self._batch = first.shape[0] if first.shape else None

    def __call__(self, obs: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        step = self._batch or max(1, len(obs))
        return np.concatenate([self._answer(obs[at : at + step], step, rng) for at in range(0, len(obs), step)])

    def _answer(self, obs: np.ndarray, step: int, rng: np.random.Generator) -> np.ndarray:
        shape, actions = self._units.obs_shape or obs.shape[1:], self._units.actions
        if len(self._first.shape) == 2:
            shape = obs.shape[1:]  # flat, also where the task's own observations are not
        given = np.zeros((step, *shape), KINDS[self._first.type])
        given[: len(obs)] = np.reshape(obs, (len(obs), *shape))
        feed = {self._first.name: given}
        for each in self._noises:
            drawn = rng.standard_normal((step, actions.low.size))
            feed[each.name] = drawn.astype(KINDS[each.type])
        seconds = SECONDS + PER_ROW * step
        _, (found,) = self._session.ask("run", list(feed.values()), seconds, output=self._output, names=list(feed))
        found = found[: len(obs)]
        flat = (len(obs), actions.low.size)
        own = found.reshape(len(obs), *actions.low.shape) if found.shape == flat else found
        require_actions(self._name, own, len(obs), actions.low.shape)
        own = own.reshape(len(obs), *actions.low.shape)
        return actions.unscale(own) if self._in_tasks_units else own.reshape(flat)
