"""Policies with known values, and logs: what the study of evaluation is judged on. One NPZ file for each task.

    python studies/evaluation/gathering.py FOLDER [TASK ...]

Eight trainings of a task (`sac` and `td3`, four seeds each) leave a snapshot of their actor at sixteen times,
and half a training of `fac-small` one of each of its four actors at four times. Further policies are nobody's:
linear controllers with random gains, constant actions, and snapshots with noise on their actions. Each policy
is run for its true value: the discounted rewards of an episode without a time limit, cut where less than a
hundredth of a value is left. Logs are the replays of the trainings, episodes of one middling policy, and
episodes of a mixture of policies. Logs and weights are kept in half precision, which halves the files; policies are
run with the weights that are kept. A file that is there already is not made again.
"""

from concurrent.futures import ProcessPoolExecutor
import dataclasses
from functools import partial
import multiprocessing
import os
from pathlib import Path
import subprocess
import sys
from typing import Any, NamedTuple

import numpy as np

GAMMA = 0.99
HORIZON = 460
"""Decisions until less than 1 % of a value is left."""
SEEDS = 4
NOISE = 0.3
"""Standard deviation of the noise of the noisy policies, and of those that collect episodes."""
SMALL = ("--actor-hidden", "64", "64", "--batch-size", "128", "--learning-rate", "1e-3")
RECIPES = {
    "sac": (*SMALL, "--critic-hidden", "128", "128", "--critic-steps", "2"),
    "td3": (*SMALL, "--critic-hidden", "128", "128", "--critic-steps", "2"),
    "fac-small": (),
}


@dataclasses.dataclass(frozen=True)
class Task:
    """How a task is trained and run."""

    repeat: int
    frames: int
    limit: int
    """Decisions in a logged episode."""
    episodes: int
    """Episodes that measure a policy; more where the first state decides much."""
    snapshots: int = 16
    """Of each training."""
    logged: int = 80
    """Episodes of the middling policy, and of the mixture."""


TASKS = {
    "cartpole-swingup": Task(4, 64_000, 250, 6),
    "reacher-easy": Task(4, 64_000, 250, 32),
    "walker-walk": Task(4, 64_000, 250, 6),
    "cheetah-run": Task(4, 64_000, 250, 6),
    "Pendulum-v1": Task(1, 16_000, 200, 64),
    "Hopper-v5": Task(2, 32_000, 500, 12),
}
QUICK = {"Pendulum-v1": Task(1, 4_000, 200, 2, snapshots=4, logged=8)}


class Networks(NamedTuple):
    """Policies of one form, stacked: tanh of a network with two hidden layers of 64, on normalised observations."""

    weights: tuple[np.ndarray, ...]
    biases: tuple[np.ndarray, ...]
    mean: np.ndarray
    deviation: np.ndarray
    noise: np.ndarray
    """Standard deviation of what is added to actions."""

    def pick(self, index: Any) -> "Networks":
        """Returns some of the policies, or one without an axis of policies."""
        return Networks(
            *(tuple(x[index] for x in part) if isinstance(part, tuple) else part[index] for part in self)
        )

    def halved(self) -> "Networks":
        """Returns the policies with weights and biases that half precision can hold."""
        rounded = lambda leaves: tuple(leaf.astype(np.float16).astype(np.float32) for leaf in leaves)
        return self._replace(weights=rounded(self.weights), biases=rounded(self.biases))

    def mode(self, obs: np.ndarray) -> np.ndarray:
        """Returns the actions of one policy without its noise."""
        value = np.clip((obs - self.mean) / self.deviation, -10, 10)
        for number, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            value = value @ weight + bias
            value = np.maximum(value, 0) if number < 2 else np.tanh(value)
        return value

    def act(self, obs: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Returns the actions of one policy."""
        act = self.mode(obs)
        return np.clip(act + self.noise * rng.normal(size=act.shape), -1, 1) if self.noise else act


def joined(parts: list[Networks]) -> Networks:
    """Returns all policies of several stacks."""
    cat = lambda *each: np.concatenate(each)
    layers = [tuple(map(cat, *(getattr(part, name) for part in parts))) for name in ("weights", "biases")]
    return Networks(*layers, *(cat(*(getattr(part, name) for part in parts)) for name in Networks._fields[2:]))


# Trainings


def train(task: str, spec: Task, recipe: str, folder: Path) -> Path:
    """Trains all seeds of a recipe and returns the run, with a checkpoint for each snapshot."""
    out, third = folder / "runs" / f"{task}-{recipe}", recipe == "fac-small"
    frames = spec.frames // 2 if third else spec.frames
    words = ["train", "--recipe", recipe, "--task", task, "--action-repeat", spec.repeat, "--steps", frames]
    words += ["--seeds", 1 if third else SEEDS, "--warmup", 500 * spec.repeat, "--quiet", "--yes", "--out", out]
    count = max(1, spec.snapshots // (4 if third else 1))
    words += ["--eval-every", frames, "--save-every", frames // count, "--keep", count]
    subprocess.run([sys.executable, "-m", "fcritic", *map(str, words), *RECIPES[recipe]], check=True)
    return out


def snapshots(run: Path) -> tuple[Networks, list[str]]:
    """Returns every actor of every seed and checkpoint, and their names: RECIPE SEED @ FRAME # ACTOR."""
    from fcritic.api.trust import config_of
    from fcritic.envs import task_spec
    from fcritic.runs.checkpoint import newest_first
    from fcritic.runs.directory import RunDirectory
    from fcritic.training.saving import load_policies

    directory = RunDirectory.open_existing(run)
    config = config_of(directory)
    spec, parts, names = task_spec(config.task), [], []
    for place in reversed(newest_first(directory.checkpoints)):
        policies, normalizer, _ = load_policies(config, place, spec=spec)
        parts.append(_networks(policies.network.layers, normalizer, spec.act_dim))
        frame, actors = int(place.name.removeprefix("step-")), len(parts[-1].noise) // config.seeds
        names += [f"{config.recipe}{s}@{frame}#{a}" for s in config.seed_numbers for a in range(actors)]
    return joined(parts), names


def _networks(layers: Any, normalizer: Any, act_dim: int) -> Networks:
    """All actors of a checkpoint, in one stack."""
    seeds, actors = layers[0].bias.shape[:2]
    flat = lambda leaf: np.asarray(leaf).reshape(seeds * actors, *leaf.shape[2:])
    repeated = lambda leaf: np.repeat(np.asarray(leaf), actors, axis=0)
    *weights, last = (flat(layer.weight) for layer in layers)
    *biases, last_bias = (flat(layer.bias) for layer in layers)
    mode = slice(act_dim)  # a Gaussian policy has its deviations behind its means
    deviation = np.sqrt(repeated(normalizer.variance) + 1e-6)
    layers = ((*weights, last[..., mode]), (*biases, last_bias[..., mode]))
    return Networks(*layers, repeated(normalizer.mean), deviation, np.zeros(seeds * actors, np.float32))


def replays(run: Path) -> np.ndarray:
    """Returns the replay of each seed (seeds, rows, width), environment by environment in the order of time."""
    from fcritic.api.trust import config_of
    from fcritic.envs import task_spec
    from fcritic.runs import checkpoint
    from fcritic.runs.directory import RunDirectory
    from fcritic.runs.replay_log import Record, ReplayLog
    from fcritic.training.replay import width_of

    directory = RunDirectory.open_existing(run)
    config = config_of(directory)
    facts = checkpoint.verify(checkpoint.newest_first(directory.checkpoints)[0], [])["facts"]
    log = ReplayLog(directory.replay, (config.seeds, config.envs, width_of(task_spec(config.task))), config.replay)
    rows = log.rows(Record.of(facts, config.replay))
    return np.moveaxis(rows, 0, 2).reshape(config.seeds, -1, rows.shape[-1])


def packed(rows: np.ndarray, obs_dim: int) -> dict[str, np.ndarray]:
    """Returns rows without their next observations, where these are the observations of the row below."""
    now, after = rows[:, :-obs_dim], rows[:, -obs_dim:]
    last = np.flatnonzero(np.r_[(now[1:, :obs_dim] != after[:-1]).any(axis=1), True])
    return {"rows": now, "last": last, "after": after[last]}


def unpacked(rows: np.ndarray, last: np.ndarray, after: np.ndarray) -> np.ndarray:
    """Returns the rows that `packed` was given."""
    obs = np.roll(rows[:, : after.shape[1]], -1, axis=0)
    obs[last.astype(int)] = after
    return np.concatenate([rows, obs], axis=1)


# Policies that nobody trained


def controllers(obs_dim: int, act_dim: int, mean: np.ndarray, deviation: np.ndarray) -> tuple[Networks, list[str]]:
    """Returns linear controllers with random gains and constant actions, as networks that compute them exactly."""
    rng = np.random.default_rng(0)
    gains = [scale * rng.normal(size=(obs_dim, act_dim)) for scale in (0.1, 0.3, 1.0, 3.0) for _ in range(2)]
    levels = [np.full(act_dim, level) for level in (-0.5, 0.0, 0.5)]
    count, width = len(gains) + len(levels), 64
    first, last = np.zeros((count, obs_dim, width)), np.zeros((count, width, act_dim))
    first[:, :, :obs_dim], first[:, :, obs_dim : 2 * obs_dim] = np.eye(obs_dim), -np.eye(obs_dim)
    bias = np.zeros((count, act_dim))
    for number, gain in enumerate(gains):  # relu(x) - relu(-x) is x
        last[number, :obs_dim], last[number, obs_dim : 2 * obs_dim] = gain, -gain
    for number, level in enumerate(levels, start=len(gains)):
        bias[number] = np.arctanh(level)
    same = lambda value: np.repeat(value[None], count, axis=0)
    weights = (first, same(np.eye(width)), last)
    biases = (np.zeros((count, width)), np.zeros((count, width)), bias)
    names = [f"linear {number}" for number in range(len(gains))] + [f"constant {level[0]:g}" for level in levels]
    return Networks(weights, biases, same(mean), same(deviation), np.zeros(count)), names


# Running policies


class Simulator:
    """A task without a time limit, whose episodes are chosen by a number."""

    def __init__(self, task: str, repeat: int):
        self.repeat = repeat
        if "-v" in task:
            import gymnasium

            self._env = gymnasium.make(task, max_episode_steps=10**9)
            low, high = self._env.action_space.low, self._env.action_space.high
            self._scale = lambda act: low + (np.clip(act, -1, 1) + 1) / 2 * (high - low)
            self._suite = False
        else:
            from dm_control import suite

            self._random = np.random.RandomState(0)
            self._env = suite.load(*task.split("-", 1), task_kwargs={"random": self._random, "time_limit": 1e9})
            self._suite = True

    def reset(self, number: int) -> np.ndarray:
        """Begins episode `number` and returns its first observation."""
        if not self._suite:
            return np.asarray(self._env.reset(seed=number)[0], np.float32)
        self._random.seed(number)
        return self._flat(self._env.reset().observation)

    def step(self, act: np.ndarray) -> tuple[np.ndarray, float, bool]:
        """Returns the next observation, the reward of all repeats, and whether the task has terminated."""
        reward = 0.0
        for _ in range(self.repeat):
            if self._suite:
                found = self._env.step(np.clip(act, -1, 1))
                obs, gain, ended = self._flat(found.observation), found.reward, False
            else:
                obs, gain, ended, *_ = self._env.step(self._scale(act).astype(np.float32))
                obs = np.asarray(obs, np.float32)
            reward += float(gain)
            if ended:
                break
        return obs, reward, ended

    @staticmethod
    def _flat(parts: dict[str, np.ndarray]) -> np.ndarray:
        return np.concatenate([np.ravel(part) for part in parts.values()]).astype(np.float32)


def measure(task: str, spec: Task, policies: Networks) -> np.ndarray:
    """Returns the discounted rewards of each policy in the same episodes (policies, episodes)."""
    episodes, rng = spec.episodes, np.random.default_rng(0)
    worlds = [Simulator(task, spec.repeat) for _ in range(episodes)]
    found = np.zeros((len(policies.noise), episodes))
    for row, policy in zip(found, map(policies.pick, range(len(found))), strict=True):
        obs = np.stack([world.reset(number) for number, world in enumerate(worlds)])
        alive = np.ones(episodes, bool)
        for step in range(HORIZON):
            act = policy.act(obs, rng)
            for number in np.flatnonzero(alive):
                obs[number], reward, ended = worlds[number].step(act[number])
                row[number] += GAMMA**step * reward
                alive[number] = not ended
            if not alive.any():
                break
    return found


def collect(task: str, spec: Task, policies: Networks, seed: int) -> np.ndarray:
    """Returns transitions of episodes with a time limit, the policies in turn, as the rows of a replay."""
    rng, world, rows = np.random.default_rng(seed), Simulator(task, spec.repeat), []
    for episode in range(spec.logged):
        policy = policies.pick(episode % len(policies.noise))
        obs = world.reset(1000 * (seed + 1) + episode)
        for _ in range(spec.limit):
            act = policy.act(obs[None], rng)[0]
            after, reward, ended = world.step(act)
            rows.append(np.concatenate([obs, act, [reward, 1.0 - ended], after]))
            obs = after
            if ended:
                break
    return np.asarray(rows, np.float32)


# Everything of a task


def processes(count: int) -> ProcessPoolExecutor:
    """Returns a pool of fresh processes; copies of one that runs JAX may deadlock."""
    return ProcessPoolExecutor(count, mp_context=multiprocessing.get_context("spawn"))


def gather(task: str, spec: Task, folder: Path, workers: int) -> None:
    """Writes TASK.npz: policies, their names and measured values, and logs."""
    with processes(workers) as pool:
        runs = list(pool.map(partial(train, task, spec, folder=folder), RECIPES))
    parts, names = map(list, zip(*map(snapshots, runs), strict=True))
    logs = {
        f"replay {recipe}{seed}": rows
        for recipe, run in zip(RECIPES, runs, strict=True)
        if recipe != "fac-small"
        for seed, rows in enumerate(replays(run))
    }
    obs_dim, last = parts[0].weights[0].shape[1], parts[0].pick(-1)
    extra = [controllers(obs_dim, parts[0].weights[-1].shape[-1], last.mean, last.deviation)]
    noisy = np.linspace(0, len(names[0]) - SEEDS, 8).astype(int) // SEEDS * SEEDS + np.arange(8) % SEEDS
    extra.append((parts[0].pick(noisy)._replace(noise=np.full(len(noisy), NOISE)),
                  [f"noisy {names[0][index]}" for index in noisy]))  # fmt: skip
    policies = joined([*parts, *(part for part, _ in extra)]).halved()
    every = [name for group in [*names, *(group for _, group in extra)] for name in group]
    chunks = [policies.pick(chunk) for chunk in np.array_split(np.arange(len(every)), 2 * workers)]
    with processes(workers) as pool:
        returns = np.concatenate(list(pool.map(partial(measure, task, spec), chunks)))
        values = returns.mean(axis=1)
        groups = [noisy_copy(policies, index) for index in log_makers(np.array(every), values)]
        made = list(pool.map(partial(collect, task, spec), groups, range(len(groups))))
    logs |= {
        f"{kind} {half}": made[2 * half + place]
        for half in (0, 1)
        for place, kind in enumerate(("middling", "mixture"))
    }
    logs = {
        f"log {name}/{part}": leaf for name, rows in logs.items() for part, leaf in packed(rows, obs_dim).items()
    }
    arrays = {f"weight{n}": leaf for n, leaf in enumerate(policies.weights)}
    arrays |= {f"bias{n}": leaf for n, leaf in enumerate(policies.biases)}
    arrays |= {name: leaf for name, leaf in logs.items() if not name.endswith("/last")}
    arrays = {name: leaf.astype(np.float16) for name, leaf in arrays.items()}
    arrays |= {name: leaf for name, leaf in logs.items() if name.endswith("/last")}
    arrays |= {name: np.float32(getattr(policies, name)) for name in ("mean", "deviation", "noise")}
    temporary = folder / f".{task}.npz"
    np.savez_compressed(temporary, names=np.array(every), returns=returns, **arrays)
    temporary.rename(folder / f"{task}.npz")


def log_makers(names: np.ndarray, values: np.ndarray) -> list[np.ndarray]:
    """Returns who collects: for each of two halves of the trainings a middling policy, then eight of all levels."""
    found = []
    for half in ("01", "23"):
        ours = np.flatnonzero(
            [name[:4] in {f"{kind}{seed}" for kind in ("sac", "td3") for seed in half} for name in names]
        )
        ranked = ours[np.argsort(values[ours])]
        found += [ranked[[len(ranked) // 2]], ranked[np.linspace(0, len(ranked) - 1, 8).astype(int)]]
    return found


def noisy_copy(policies: Networks, index: np.ndarray) -> Networks:
    """Returns some policies with noise, as who collects data has it."""
    chosen = policies.pick(index)
    return chosen._replace(noise=np.full(len(index), NOISE))


def complete(folder: Path, tasks: dict[str, Task]) -> None:
    """Gathers what is not there yet."""
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    os.environ.setdefault("MUJOCO_GL", "disabled")  # nothing is drawn
    for task, spec in tasks.items():
        if not (folder / f"{task}.npz").is_file():
            gather(task, spec, folder, os.cpu_count() or 2)


if __name__ == "__main__":
    complete(Path(sys.argv[1]), {task: TASKS[task] for task in sys.argv[2:] or TASKS})
