"""Candidates by name: the policies of runs and exported agents, ONNX files and functions."""

from collections.abc import Callable, Iterable, Iterator, Sequence
import dataclasses
import os
from pathlib import Path
import re
from typing import Any
import warnings

import equinox as eqx
import jax
from jaxtyping import Array, Float
import numpy as np

from fcritic import ensembles
from fcritic.api.load import TrainedAgent
from fcritic.api.trust import config_of
from fcritic.api.valuation import actions
from fcritic.code import import_module, missing, run_file
from fcritic.config import TrainConfig
from fcritic.disk import Place
from fcritic.envs import task_units
from fcritic.envs.base import Units
from fcritic.errors import CheckpointError, UsageError
from fcritic.networks.policies import GaussianPolicy
from fcritic.offline.candidates import PROBES, Act, Candidate, require_actions, verified
from fcritic.offline.dataset import Dataset
from fcritic.offline.interface import Interface
from fcritic.offline.onnx_files import of_onnx
from fcritic.runs import CONFIG, checkpoint
from fcritic.runs.directory import RunDirectory
from fcritic.training.replay import Normalizer
from fcritic.training.saving import load_policies
from fcritic.types import EnvSpec

LARGEST = 2**13
"""Observations that a policy of a run answers to in one go."""

_CHOSEN = re.compile(r"(?P<run>.+?)(@(?P<frame>[0-9]+))?(\.s(?P<seed>[0-9]+))?(#(?P<actor>[0-9]+))?")

Given = str | Path | Candidate | TrainedAgent | Callable[[Any], Any]


def read_policies(
    given: Given | Iterable[Given], seen: Dataset | Interface, stochastic: bool = False
) -> list[Candidate]:
    """Returns all candidates that these name, each tried on a few observations of the data.

    A run, exported or not, gives one for each actor of each kept checkpoint of each seed; `run@frame#actor` gives
    one of them. `module:function`, `file.py:function` and functions map a batch of the task's observations to a
    batch of its actions. `stochastic` draws the actions of runs whose policies are distributions (sac).
    """
    seen = seen.interface() if isinstance(seen, Dataset) else seen
    one_alone = isinstance(given, str | Path | Candidate | TrainedAgent) or not isinstance(given, Iterable)
    every: Iterable[Given] = [given] if one_alone else given  # pyright: ignore
    found = [each for one in every for each in _candidates(one, seen, stochastic)]
    if not found:
        raise UsageError("no policies are named; give --policies at least one")
    return [verified(candidate, seen.samples[:PROBES], seen.act_dim) for candidate in _with_names_apart(found)]


def _candidates(given: Given, seen: Interface, stochastic: bool) -> Iterator[Candidate]:
    units = seen.units
    if isinstance(given, Candidate):
        yield given
    elif isinstance(given, TrainedAgent):
        yield from _of_agent(given, units)
    elif not isinstance(given, str | os.PathLike):
        if not callable(given):
            raise UsageError(f"{given!r:.60} is not a policy; give a function, a loaded agent or the name of one")
        yield _of_function(getattr(given, "__name__", type(given).__name__), given, units)
    else:
        yield from _of_name(os.fspath(given), seen, stochastic)


def _of_name(name: str, seen: Interface, stochastic: bool) -> Iterator[Candidate]:
    if (run := run_of(name)) is not None:
        yield from _of_run(name, run, seen, stochastic)
    elif Path(name).suffix == ".onnx":
        yield of_onnx(name, seen.units)
    elif ":" in name:
        yield _of_function(name, _function(name), seen.units)
    elif Path(name).is_dir():
        inside = [each for each in sorted(Place(Path(name)).entries()) if _is_run(os.path.join(name, each))]
        hint = f"; name the runs in it, such as {os.path.join(name, inside[0])}" if inside else ""
        raise UsageError(f"{name} is not a run (it has no {CONFIG}){hint}")
    else:
        raise UsageError(
            f"{name} is not a policy; name the directory of a run, an .onnx file, module:function or "
            "path/to/file.py:function"
        )


def run_of(name: str) -> RunDirectory | None:
    """Returns the run that a name of policies begins with, or None where it names no run."""
    if _is_run(name):
        return RunDirectory.open_existing(name)
    chosen = _CHOSEN.fullmatch(name)
    return RunDirectory.open_existing(chosen["run"]) if chosen and _is_run(chosen["run"]) else None


def _is_run(name: str) -> bool:
    return (Place(Path(name)) / CONFIG).status() is not None


# Policies of runs


def _of_run(name: str, run: RunDirectory, seen: Interface, stochastic: bool) -> Iterator[Candidate]:
    chosen = None if _is_run(name) else _CHOSEN.fullmatch(name)
    path = chosen["run"] if chosen else name
    parts = chosen.groupdict(default="") if chosen else {}
    wanted = {part: int(number) for part, number in parts.items() if part != "run" and number}
    config = config_of(run)
    spec, units = task_units(config.task)
    if (spec.obs_dim, spec.act_dim) != (seen.obs_dim, seen.act_dim):
        raise UsageError(
            f"{path} is of {config.task}, with {spec.obs_dim} observations and {spec.act_dim} actions; "
            f"the data have {seen.obs_dim} and {seen.act_dim}"
        )
    found = False
    for frame, policies, normalizers in _checkpoints(run, config, spec, wanted.get("frame")):
        actors = jax.tree.leaves(policies)[0].shape[1]
        for index, seed in enumerate(config.seed_numbers):
            for actor in range(actors):
                if wanted.get("seed", seed) != seed or wanted.get("actor", actor) != actor:
                    continue
                found = True
                label = f"{path}@{frame}" + f".s{seed}" * (config.seeds > 1) + f"#{actor}" * (actors > 1)
                policy = ensembles.member(policies, (index, actor))
                normalizer = ensembles.member(normalizers, index) if config.normalize else None
                drawn = stochastic and isinstance(policy, GaussianPolicy)
                act = _network(policy, normalizer, drawn, units, seen.units)
                yield Candidate(label, "run", act, drawn, config.task)
    if not found:
        raise UsageError(f"{path} has no policy {name.removeprefix(path)}; its names are {_names(run, config)}")


def _checkpoints(
    run: RunDirectory, config: TrainConfig, spec: EnvSpec, frame: int | None
) -> Iterator[tuple[int, Any, Normalizer]]:
    """Yields frame, policies (seeds, actors, ...) and normalisers of those kept, the oldest first.

    Damaged ones are named in a warning.
    """
    places = checkpoint.newest_first(run.checkpoints)[::-1]
    if not places:
        raise run.no_checkpoint_yet()
    faults = []
    for place in places:
        number = int(place.name.removeprefix("step-"))
        if frame is not None and number != frame:
            continue
        try:
            policies, normalizers, _ = load_policies(config, place, spec=spec)
        except CheckpointError as error:
            faults.append(error)
            continue
        yield number, *jax.tree.map(np.asarray, (policies, normalizers))
    if len(faults) == len(places):
        raise checkpoint.none_usable(run.checkpoints, faults)
    if faults:
        warnings.warn(f"skipped: {checkpoint.in_words(faults)}", stacklevel=2)


def _names(run: RunDirectory, config: TrainConfig) -> str:
    frames = [int(place.name.removeprefix("step-")) for place in checkpoint.newest_first(run.checkpoints)[::-1]]
    seeds = f", seeds .s{config.seed_numbers[0]} to .s{config.seed_numbers[-1]}" if config.seeds > 1 else ""
    return f"@{' @'.join(map(str, frames[:10]))}{seeds} and, where there are several actors, #0, #1, ..."


def _network(policy: Any, normalizer: Normalizer | None, drawn: bool, own: Units, asked: Units) -> Act:
    """A policy of a run as a function of raw observations. All of one shape share one compiled program."""
    same = _same_bounds(own, asked)

    def respond(obs: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        parts = []
        for start in range(0, len(obs), LARGEST):
            part = np.asarray(obs[start : start + LARGEST], np.float32)
            padded = np.zeros((_room(len(part)), part.shape[1]), np.float32)
            padded[: len(part)] = part
            if drawn:
                noise = rng.standard_normal((len(padded), policy.act_dim), np.float32)
                found = _drawn(policy, normalizer, padded, noise)
            else:
                found = actions(policy, normalizer, padded)
            parts.append(np.asarray(found)[: len(part)])
        act = np.concatenate(parts)
        return act if same else asked.actions.unscale(own.actions.scale(act))

    return respond


def _room(count: int) -> int:
    """A power of two, so that few programs serve every number of observations."""
    return 1 << max(6, (count - 1).bit_length())


@eqx.filter_jit
def _drawn(
    policy: GaussianPolicy,
    normalizer: Normalizer | None,
    obs: Float[Array, "batch obs"],
    noise: Float[Array, "batch act"],
) -> Float[Array, "batch act"]:
    return policy.sample(obs if normalizer is None else normalizer(obs), noise)[0]


def _of_agent(agent: TrainedAgent, asked: Units) -> Iterator[Candidate]:
    """Every actor of an agent that Python has loaded."""
    for actor in range(agent.actors):
        act = _network(agent.policy(actor), agent.policy_normalizer, False, agent.units, asked)
        label = f"{agent.directory}@{agent.frame}{f'#{actor}' if agent.actors > 1 else ''}"
        yield Candidate(label, "run", act, task=agent.config.task)


def _same_bounds(own: Units, asked: Units) -> bool:
    pairs = ((own.actions.low, asked.actions.low), (own.actions.high, asked.actions.high))
    return all(np.array_equal(np.ravel(one), np.ravel(two)) for one, two in pairs)


# Functions


def _function(name: str) -> Callable[[Any], Any]:
    """What `module:function` or `file.py:function` names; whoever types it trusts its code."""
    place, _, attribute = name.rpartition(":")
    module = run_file(place) if place.endswith(".py") else import_module(place)
    found: Any = module
    for part in attribute.split("."):
        found = getattr(found, part, None)
    if found is None:
        raise missing(name)
    if not callable(found):
        raise UsageError(f"{name} is a {type(found).__name__}, not a function from observations to actions")
    return found


def _of_function(name: str, function: Callable[[Any], Any], units: Units) -> Candidate:
    shape = units.actions.low.shape

    def respond(obs: np.ndarray, _: np.random.Generator) -> np.ndarray:
        own = np.array(obs, np.float32).reshape(len(obs), *(units.obs_shape or obs.shape[1:]))
        found = np.asarray(function(own))
        require_actions(name, found, len(obs), shape)
        return units.actions.unscale(found.reshape(len(obs), *shape))

    return Candidate(name, "function", respond)


def _with_names_apart(candidates: Sequence[Candidate]) -> list[Candidate]:
    """The candidates, of which no two have the same name: the same one twice, or two functions of one name."""
    seen: dict[str, int] = {}
    found = []
    for candidate in candidates:
        seen[candidate.name] = count = seen.get(candidate.name, 0) + 1
        name = candidate.name if count == 1 else f"{candidate.name} ({count})"
        found.append(dataclasses.replace(candidate, name=name))
    return found
