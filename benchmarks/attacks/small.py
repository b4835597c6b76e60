"""Trainings small enough to be repeated hundreds of times, with every part that large ones have.

    python -m benchmarks.attacks.small RECIPE OUT

is one of them in a process of its own.
"""

import dataclasses
from pathlib import Path
import sys

from fcritic.agents.fac import FAC
from fcritic.agents.recipes import find_recipe
from fcritic.config import TrainConfig
from fcritic.networks.actor_encoder import EncoderConfig
from fcritic.runs.directory import RunDirectory
from fcritic.startup.backend import prepare
from fcritic.training.loop import FREE_FIELDS, Training

RECIPES = ("fac", "fac-shared", "sac", "sac+", "td3", "td3+")
"""The recipes of the figures."""


def small_config(recipe: str) -> TrainConfig:
    """A recipe with tiny networks: two seeds, two environments each, on a real simulator.

    Episodes of 50 steps end several times, the replay wraps around, evaluations and saves fall between.
    """
    agent = find_recipe(recipe)
    if isinstance(agent, FAC):
        encoder = EncoderConfig(probes=5, depth=1, code=4, width=8, heads=2, shared=agent.encoder.shared)
        sizes = {"members": 3, "state_action_hidden": (7,), "state_action_code": 4, "joint_hidden": (6,)}
        agent = dataclasses.replace(agent, batch_size=5, actor_hidden=(8, 6), encoder=encoder, **sizes)
    else:
        agent = dataclasses.replace(agent, batch_size=5, actor_hidden=(8,), critic_hidden=(9,))
    return TrainConfig(
        agent=agent,
        recipe=recipe,
        task="acrobot-swingup",
        action_repeat=20,
        envs=2,
        seeds=2,
        seed=3,
        steps=4800,  # 120 iterations of 40 frames
        warmup=800,
        replay=60,
        eval_every=2400,
        log_every=400,
        save_every=2400,
    )


def train_until(config: TrainConfig, out: Path, iteration: int) -> None:
    """Trains in a directory, or continues there, up to an iteration, and saves as a signal would make it save."""
    with RunDirectory.create_or_open(out, config.to_json(), "reliability", FREE_FIELDS) as run:
        training = Training.begin(config, run, quiet=True)
        try:
            training.advance(iteration - training.progress.iteration)
            training.save()
        finally:
            training.close()


if __name__ == "__main__":
    prepare(deterministic=True)
    chosen = small_config(sys.argv[1])
    train_until(chosen, Path(sys.argv[2]), chosen.iterations)
