"""The trainings of `fcritic explore sparse`: tasks whose reward is hard to find, and who looks for it."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np

from fcritic.agents.base import AbstractAgent
from fcritic.agents.fac import FAC, Explore
from fcritic.agents.recipes import find_recipe
from fcritic.config import TrainConfig
from fcritic.results import read as results
from fcritic.runs.directory import RunDirectory
from fcritic.training.loop import train

SEEDS = 4
REPORTED = ("diversity", "disagreement", "coverage")
"""Measures of behaviour that go into sparse.csv."""


@dataclasses.dataclass(frozen=True)
class Setting:
    """How a task is run. All numbers were fixed before the first run."""

    frames: int
    discount: float
    prior: float
    """Scale of priors, of the order of the task's values."""
    found: float
    """A reward above this is what is looked for."""
    solved: float
    """A seed has learned the task when its mean actor's return is above this."""
    action_repeat: int = 1
    envs: int = 4
    """For each seed."""
    normalize: bool = True
    evaluation_episodes: int = 2


TASKS: dict[str, Setting] = {
    "trap": Setting(800, 0.9, 1.0, 0.5, 0.5, normalize=False),
    "riverswim-6": Setting(3_000, 0.95, 3.0, 0.5, 1.7, normalize=False, evaluation_episodes=10),
    "deepsea-10": Setting(5_000, 0.99, 1.0, 0.5, 0.5, normalize=False, evaluation_episodes=5),
    "MountainCarContinuous-v0": Setting(16_000, 0.99, 30.0, 50.0, 0.0, action_repeat=4),
}
"""What runs by default: minutes on two cores."""
LARGE_TASKS: dict[str, Setting] = {
    "cartpole-swingup_sparse": Setting(240_000, 0.99, 30.0, 0.5, 100.0, action_repeat=4, envs=8),
    "pendulum-swingup": Setting(240_000, 0.99, 30.0, 0.5, 100.0, action_repeat=4, envs=8),
    "acrobot-swingup_sparse": Setting(320_000, 0.99, 30.0, 0.5, 20.0, action_repeat=4, envs=8),
    "hopper-hop": Setting(320_000, 0.99, 30.0, 0.5, 20.0, action_repeat=4, envs=8),
}
"""What runs when it is named with `--tasks`: 7,500 or 10,000 iterations each."""
SETTINGS = TASKS | LARGE_TASKS

_LIGHT: dict[str, Any] = {
    "batch_size": 64,
    "actor_hidden": (32, 32),
    "state_action_hidden": (64,),
    "joint_hidden": (64,),
}
_BASELINE: dict[str, Any] = {"batch_size": 64, "actor_hidden": (64, 64), "critic_hidden": (64, 64)}

METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "functional": ("fac-small", {}),
    "functional, prior": ("fac-small", {"prior": True}),
    "functional, prior, per step": ("fac-small", {"prior": True, "explore": Explore(per_step=True)}),
    "plain": ("fac-small", {"functional": False}),
    "plain, prior": ("fac-small", {"functional": False, "prior": True}),
    "sac": ("sac", {}),
    "td3": ("td3", {}),
    "sac+": ("sac+", {}),
}
"""By name: the recipe and what is changed in it; `prior` stands for the scale that fits the task."""


@dataclasses.dataclass(frozen=True)
class Found:
    """What one method did on one task; an entry per seed."""

    first_reward: np.ndarray
    """Frames; infinite where no reward was found."""
    mean_actor: np.ndarray
    """Return of the last evaluation."""
    measures: dict[str, np.ndarray]
    """Behaviour at the last evaluation; NaN where an agent does not have it."""


def agent_of(method: str, setting: Setting) -> AbstractAgent:
    """A small agent that learns at the rate of `fac-small`."""
    recipe, changes = METHODS[method]
    agent = find_recipe(recipe)
    changes = dict(changes)
    if changes.pop("prior", False):
        changes["prior_scale"] = setting.prior
    if isinstance(agent, FAC):
        encoder = dataclasses.replace(agent.encoder, probes=16, width=16, code=16)
        changes = _LIGHT | {"encoder": encoder} | changes
    else:
        changes = _BASELINE | {"learning_rate": 1e-3} | changes
    return dataclasses.replace(agent, discount=setting.discount, **changes)


def config_of(task: str, method: str, frames: int, seeds: int) -> TrainConfig:
    """A few environments per seed, whose first actions are already the agent's own: no uniform warm-up."""
    setting = SETTINGS[task]
    return TrainConfig(
        agent_of(method, setting),
        recipe=METHODS[method][0],
        task=task,
        envs=setting.envs,
        seeds=seeds,
        steps=frames,
        action_repeat=setting.action_repeat,
        warmup=min(200, frames // 4) * setting.action_repeat,
        warmup_actions="policy",
        replay=max(1, min(frames // (setting.envs * setting.action_repeat), 100_000)),
        normalize=setting.normalize,
        eval_every=max(1, frames // 4),
        eval_episodes=setting.evaluation_episodes,
        first_reward_above=setting.found,
        save_every=frames,
        log_every=max(1, frames // 4),
    )


def conduct_run(task: str, method: str, frames: int, seeds: int, folder: Path) -> Found:
    """Trains in a folder, or takes what is there, and reads what was found."""
    config = config_of(task, method, frames, seeds)
    run = _directory(task, method, folder)
    if not is_finished(task, method, frames, seeds, folder):
        run = train(config, run.path, f"fcritic explore sparse --tasks {task}", quiet=True)
    did, curves = results.behaviour(run), results.curves(run)
    frames_of = lambda seed: np.inf if did.first_reward[seed] is None else did.first_reward[seed]
    last = lambda series: np.array(
        [series[seed][1][-1] if seed in series else np.nan for seed in config.seed_numbers]
    )
    return Found(
        np.array([frames_of(seed) for seed in config.seed_numbers], float),
        last(curves.mean_actor),
        {name: last(did.measures[name]) for name in REPORTED},
    )


def is_finished(task: str, method: str, frames: int, seeds: int, folder: Path) -> bool:
    """Whether this very training is there and at its end."""
    run, config = _directory(task, method, folder), config_of(task, method, frames, seeds)
    ended = run.newest_frame() >= config.iterations * config.frames_per_iteration
    return ended and TrainConfig.from_json(run.config) == config


def _directory(task: str, method: str, folder: Path) -> RunDirectory:
    return RunDirectory(folder / task / method.replace(", ", "-").replace(" ", "-"))
