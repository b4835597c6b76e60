"""What a training is: every number that decides its outcome, in one frozen dataclass."""

import contextlib
import dataclasses
import json
import math
from pathlib import Path
import re
import types
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import jax
import numpy as np
import tyro

from fcritic.agents.base import AbstractAgent
from fcritic.agents.recipes import ALGORITHMS, RECIPES, Recipe, algorithm_of, named_recipe
from fcritic.code import located
from fcritic.disk import require_memory
from fcritic.envs.local import LONGEST
from fcritic.errors import UsageError, did_you_mean, require_at_least, shown
from fcritic.types import EnvSpec

WIDEST, DEEPEST = 2**14, 64
"""The most neurons in a layer, and layers in a network."""

MOST = {
    "members": 256,
    "critics": 256,
    "actors": 256,
    "depth": DEEPEST,
    "heads": 256,
    "probes": WIDEST,
    **dict.fromkeys(("policies", "rows", "bank"), 2**12),
    "code": WIDEST,
    "width": WIDEST,
    "state_action_code": WIDEST,
    "batch_size": 2**20,
    "critic_steps": 1000,
    "actor_steps": 32,
    "cycles": 1000,
    "seeds": 1000,
    "envs": 10_000,
    "env_processes": 1000,
    "env_timeout": LONGEST,
    "action_repeat": 1000,
    "eval_episodes": 100_000,
    "knowledge": 1000,
    **dict.fromkeys(("steps", "warmup", "eval_every", "log_every", "save_every", "seed"), 10**15),
    **dict.fromkeys(("value_limit", "first_reward_above"), 1e30),
}
"""The largest numbers of some options; far beyond what anybody trains, and within what can be tried at all."""

MOST_OTHERS = {int: 2**31 - 1, float: 1e9}
"""The largest numbers of all other options."""

MOST_ENVIRONMENTS = 10_000
"""Of all seeds together."""

MOST_ITERATIONS = 2**31 - 1
"""What counts them holds 32 bits."""

MOST_LETTERS = 4000
"""Of a name, which may be a path."""

INERT = object()
"""In `RETIRED`: any value will do, since another retired option decided whether it meant anything."""

RETIRED: dict[str, dict[str, Any]] = {
    "FAC": {
        "encoder_learning_rate": None,
        "adam_epsilon": 1e-8,
        "actor_states": "current",
        "targets": "own",
        "neighbours": "none",
        "neighbour_scale": INERT,
        "neighbour_rate": INERT,
        "action_noise": 0.0,
        "mask_probability": 1.0,
    },
    "EncoderConfig": {
        "places": "learned",
        "pooling": "summary",
        "activation": "relu",
        "norm_first": True,
        "probe_init": "normal",
    },
    "SAC": {"adam_epsilon": 1e-8},
    "TD3": {"adam_epsilon": 1e-8},
}
"""Options that are gone, by the class that had them, with the value at which an old run is still the same run."""

MOVED: dict[str, dict[str, str]] = {
    "FAC": {
        "exploration_noise": "explore.noise",
        "exploration_memory": "explore.memory",
        "rollout_actors": "explore.actors",
        "per_step_actor": "explore.per_step",
    },
}
"""Options that have another name or group now, by the class that had them: ``noise`` to ``explore.noise``."""

RETIRED_VALUES: dict[str, dict[str, tuple[Any, ...]]] = {"FAC": {"pairing": ("permuted",)}}
"""Values that are gone of options that stay, by the class that has them."""

RECIPE_HELP = f"Algorithm with its defaults: {', '.join(RECIPES)}, or your own code (path/to/file.py:Name)."
"""What `--help` says of `--recipe`, with the names, which a page lists elsewhere."""

TYPED = {"begin_from": "from"}
"""Options whose fields have another name, as theirs is a word of Python."""


def as_words(option: str, value: Any) -> list[str]:
    """Returns an option and its value as the words of a command line; groups are dotted: `encoder.probes`."""
    group, dot, name = TYPED.get(option, option).replace("_", "-").rpartition(".")
    if isinstance(value, bool):
        return [f"--{group}{dot}{'' if value else 'no-'}{name}"]
    return [f"--{group}{dot}{name}", *map(str, value if isinstance(value, list | tuple) else [value])]


NOTEBOOK = "672c61a"
"""The last commit of version 0.1.0 that has every retired option, its lab notebook."""


@dataclasses.dataclass(frozen=True)
class TrainConfig:
    """One training. Steps are frames of the simulator, summed over the environments of a seed."""

    agent: Annotated[AbstractAgent, tyro.conf.arg(name="")]
    """The algorithm with all its numbers."""
    recipe: Annotated[str, tyro.conf.arg(help=RECIPE_HELP)] = "fac"
    """Algorithm with its defaults: one of the recipes, or your own code (path/to/file.py:Name)."""
    task: str = "cartpole-swingup"
    """domain-task of DeepMind Control (cheetah-run), a Gymnasium id (Pendulum-v1), your own code (module:factory or
    path/to/file.py:factory), or a small task with known values: a probe, riverswim-6, deepsea-10 (the number is the
    size), deepsea-10-stochastic, trap."""
    envs: int = 1
    """Parallel environments per seed."""
    steps: int = 1_000_000
    """Frames until the end, summed over the environments of a seed."""
    seeds: int = 1
    """Independent trainings in this process, side by side on the device."""
    seed: int = 0
    """Number of the first seed; the others follow."""
    action_repeat: int = 1
    """Frames for which each action is held; rewards are summed. Where --task is given the default is 1."""
    warmup: int = 10_000
    """Frames before learning begins (open in the paper)."""
    warmup_actions: Literal["uniform", "policy"] = "uniform"
    """Actions during warm-up: uniform at random, or of the untrained policy with its noise (open in the paper)."""
    replay: int = 100_000
    """Steps per environment in the replay (open in the paper)."""
    begin_from: Annotated[str | None, tyro.conf.arg(name=TYPED["begin_from"], metavar="RUN")] = None
    """Fine-tune: begin with the networks, optimisers and normaliser of this run's newest checkpoint, and with its
    options where none are given. Each seed begins with the seed of its number, or all with the only one; frames
    count from 0."""
    data: Annotated[tuple[str, ...], tyro.conf.arg(metavar="DATA ...")] = ()
    """Logged transitions to put into the replay of every seed before the first frame: runs, or anything that
    `fcritic rank --data` reads. They do not count as frames; a full replay overwrites them first."""
    normalize: bool = True
    """Scale observations by their running mean and deviation (open in the paper)."""
    recency: float = 8.0
    """Weight w of late data in the normaliser: batch k enters with rate w/(w+k); 1 weighs all batches alike."""
    eval_every: int = 10_000
    """Frames between evaluations of every actor on fresh environments."""
    eval_episodes: int = 1
    """Episodes per actor in each of these evaluations."""
    knowledge: int = 0
    """Past actors, and as many mixtures, that run one episode each at every evaluation, to compare the critics'
    values of them with their returns; needs `--cloud.bank`. 0: none."""
    first_reward_above: float = 0.0
    """The first reward above this is logged with its frame; training does not use it."""
    log_every: int = 1_000
    """Frames between rows of losses in metrics.jsonl."""
    save_every: int = 50_000
    """Frames between checkpoints; there is always one at the end."""
    keep: int = 2
    """Number of newest checkpoints to keep."""
    env_processes: int = 0
    """Worker processes for the environments; 0: they run in the training's own process."""
    env_timeout: float = 60.0
    """Longest time, in seconds, for one step or reset of one environment; a longer one is a fault."""
    on_fault: Literal["stop", "skip", "rollback"] = "stop"
    """After an environment fails: `stop`; `skip` rebuilds it and drops its episode; `rollback` returns to the last
    checkpoint and goes on with other random numbers. After a divergence: `rollback` returns, the others stop."""
    value_limit: float = 100.0
    """Largest mean value before a training counts as diverged, in multiples of max|r|/(1-gamma) over the rewards
    seen (with at least 1 for max|r|); 0: no limit."""
    log: Literal["files", "wandb", "trackio"] = "files"
    """An installed tracker that receives the metrics besides the run's own files. wandb stays offline unless
    WANDB_MODE is set."""
    deterministic: bool = False
    """Use only deterministic operations on a GPU, which is slower; on a CPU all are."""

    def __post_init__(self) -> None:
        counts = "envs steps seeds action_repeat replay eval_every eval_episodes log_every save_every keep"
        require_at_least(1, **{name: getattr(self, name) for name in [*counts.split(), "recency"]})
        amounts = "warmup seed value_limit env_processes knowledge"
        require_at_least(0, **{name: getattr(self, name) for name in amounts.split()})
        require_at_least(0.1, env_timeout=self.env_timeout)
        _require_buildable(self, "")
        if self.knowledge and not self.agent.keeps_past:
            raise UsageError(
                "--knowledge asks critics that see the policy about past actors; keep some: --cloud.bank 32"
            )
        if self.envs * self.seeds > MOST_ENVIRONMENTS:
            raise UsageError(
                f"--envs times --seeds must be at most {MOST_ENVIRONMENTS:,}, not {self.envs * self.seeds:,}"
            )
        if self.iterations > MOST_ITERATIONS:
            raise UsageError(f"--steps must be at most {MOST_ITERATIONS * self.frames_per_iteration:,} here")
        if self.seed + self.seeds > 2**32:
            raise UsageError(f"--seed and --seeds must stay below {2**32}; lower --seed {self.seed}")

    @staticmethod
    def of(recipe: Recipe, **changes: Any) -> "TrainConfig":
        """The config of a recipe, with changes of its fields."""
        name, agent = named_recipe(recipe)
        return TrainConfig(agent, recipe=name, **changes)

    @property
    def run_name(self) -> str:
        """A folder's name for a run of this config that was given none."""
        return re.sub(r"[^\w.:+-]", "_", f"{self.recipe}-{self.task}-{self.seed}")

    @property
    def algorithm(self) -> str:
        """The name of the agent's class."""
        return algorithm_of(type(self.agent), self.recipe)

    @property
    def frames_per_iteration(self) -> int:
        """Frames that one iteration takes: one action in each environment."""
        return self.envs * self.action_repeat

    @property
    def iterations(self) -> int:
        """Iterations until at least `steps` frames were taken."""
        return -(-self.steps // self.frames_per_iteration)

    @property
    def warmup_iterations(self) -> int:
        """Iterations before learning begins; at least one, since an update needs data."""
        return max(1, -(-self.warmup // self.frames_per_iteration))

    @property
    def seed_numbers(self) -> list[int]:
        """The number of each seed."""
        return list(range(self.seed, self.seed + self.seeds))

    @property
    def env_options(self) -> dict[str, Any]:
        """What `envs.make_vector` needs to know beside the task and the number of environments."""
        where = {"processes": self.env_processes, "timeout": self.env_timeout, "on_fault": self.on_fault}
        return {"seeds": self.seed_numbers, "action_repeat": self.action_repeat} | where

    @property
    def updates_per_frame(self) -> tuple[float, float]:
        """Critic and actor updates per frame, which fall as environments are added."""
        cycles = self.agent.cycles / self.frames_per_iteration
        return self.agent.critic_steps * cycles, cycles / self.agent.actor_delay

    def to_json(self) -> dict[str, Any]:
        """Returns nested plain values, from which `from_json` makes the same config; refuses what it could not."""
        kind = type(self.agent)
        data = {"algorithm": self.algorithm} | dataclasses.asdict(self)
        try:
            read = dataclasses.asdict(TrainConfig.from_json(json.loads(json.dumps(data))))
        except (UsageError, TypeError, ValueError, NameError) as error:
            raise UsageError(f"an option of {kind.__name__} cannot be kept in config.json: {error}") from error
        if json.dumps(read) != json.dumps(dataclasses.asdict(self)):
            raise UsageError(f"the options of {kind.__name__} are not the same again when read from config.json")
        return data

    @staticmethod
    def as_now(data: dict[str, Any], folder: Path) -> dict[str, Any]:
        """Returns the recorded config of the run in a folder, with the present paths of the user's code."""
        names = {name: data.get(name) for name in ("task", "recipe", "algorithm")}
        return data | {name: located(value, folder) for name, value in names.items() if isinstance(value, str)}

    @staticmethod
    def from_json(data: dict[str, Any]) -> "TrainConfig":
        """The config of a run directory; unknown fields are refused, missing ones have their defaults."""
        algorithm = data.get("algorithm")
        if not isinstance(algorithm, str) or algorithm not in ALGORITHMS:
            raise UsageError(
                f"config.json names an unknown algorithm {algorithm!r:.60}; if it is yours, call fcritic.register "
                "with its class first or name it path/to/file.py:Name, else update fcritic"
            )
        fields = {name: value for name, value in data.items() if name not in ("algorithm", "agent")}
        agent = _from_json(ALGORITHMS[algorithm], data.get("agent"), "agent.")
        return _from_json(TrainConfig, fields | {"agent": agent}, "")


def _from_json(kind: type, data: Any, prefix: str) -> Any:
    if not isinstance(data, dict):
        raise UsageError(f"config.json: {prefix or 'its content'} must be an object; restore the file")
    types_of = get_type_hints(kind)
    hints = {field.name: types_of[field.name] for field in dataclasses.fields(kind)}
    values = {}
    for name, value in _as_of_today(kind, data, prefix).items():
        if name not in hints:
            shown = name if name.isidentifier() else repr(name)
            raise UsageError(f"config.json: unknown field {prefix}{shown:.60}{did_you_mean(name[:60], hints)}")
        hint = hints[name]
        if dataclasses.is_dataclass(hint) and hint is not AbstractAgent:
            value = _from_json(hint, value, f"{prefix}{name}.")
        elif not fits(value, hint) or not _is_plain(value):
            raise UsageError(f"config.json: {prefix}{name} cannot be {_in_words(value)}; restore the file")
        if float in (hint, *get_args(hint)) and type(value) is int:
            value = float(value)
        values[name] = tuple(value) if isinstance(value, list) else value
    try:
        return kind(**values)
    except TypeError as error:
        raise UsageError(f"config.json does not fit this version of fcritic: {error}") from error


def _in_words(value: Any) -> str:
    return shown(value) if type(value) is int else f"{value!r:.60}"


def _is_plain(value: Any) -> bool:
    """Whether text is printable and short, and numbers are of a size that a user may type."""
    if isinstance(value, str):
        return value.isprintable() and len(value) <= MOST_LETTERS
    if isinstance(value, list):
        return all(map(_is_plain, value))
    return not isinstance(value, int) or abs(value) <= 10**15


def _as_of_today(kind: type, data: dict[str, Any], prefix: str) -> dict[str, Any]:
    """Returns what an old version wrote about a class with today's names, without what is retired."""
    fields = dict(data)
    for old, new in MOVED.get(kind.__name__, {}).items():
        *groups, name = new.split(".")
        if old not in fields:
            continue
        value, owner = fields.pop(old), fields
        for group in groups:
            owner[group] = dict(owner[group]) if isinstance(owner.get(group), dict) else {}
            owner = owner[group]
        owner.setdefault(name, value)
    for name, harmless in RETIRED.get(kind.__name__, {}).items():
        value = fields.pop(name, INERT)
        harmless = list(harmless) if isinstance(harmless, tuple) else harmless
        alike = value == harmless and isinstance(value, bool) == isinstance(harmless, bool)  # 1 is 1.0, not True
        if INERT not in (value, harmless) and not alike:
            raise _retired(f"the option {prefix}{name}, here {value!r:.60},")
    for name, gone in RETIRED_VALUES.get(kind.__name__, {}).items():
        if fields.get(name) in gone:
            raise _retired(f"the value {fields[name]!r:.60} of {prefix}{name}")
    return fields


def _retired(what: str) -> UsageError:
    return UsageError(
        f"config.json: {what} is retired; version 0.1.0 has it, at its lab-notebook commit {NOTEBOOK}"
    )


def fits(value: Any, hint: Any) -> bool:
    """Whether a value from JSON is of the type that a field declares."""
    arguments = get_args(hint)
    if isinstance(hint, types.UnionType) or get_origin(hint) is Union:
        return any(fits(value, each) for each in arguments)
    if get_origin(hint) is Literal:
        return value in arguments
    if get_origin(hint) is tuple:
        if not isinstance(value, list | tuple):
            return False
        kinds = arguments[:1] * len(value) if arguments[-1:] == (...,) else arguments
        return len(value) == len(kinds) and all(map(fits, value, kinds))
    if hint is float:  # JSON does not distinguish 1 from 1.0
        return type(value) in (int, float)
    return type(value) is hint if hint in (int, bool, str, type(None)) else isinstance(value, hint)


def _require_buildable(options: Any, prefix: str) -> None:
    """Refuses numbers that no machine could build, mistyped or from a damaged file, before anything is tried."""
    for field in dataclasses.fields(options):
        value = getattr(options, field.name)
        if dataclasses.is_dataclass(value):
            _require_buildable(value, "" if isinstance(value, AbstractAgent) else f"{prefix}{field.name}.")
            continue
        option = f"--{prefix}{field.name}".replace("_", "-")
        each = value if isinstance(value, tuple) else (value,)
        if len(each) > DEEPEST:
            raise UsageError(f"{option} must be at most {DEEPEST} numbers, not {len(each)}")
        for number in each:
            if type(number) not in MOST_OTHERS:
                continue
            widest = WIDEST if isinstance(value, tuple) and type(number) is int else MOST_OTHERS[type(number)]
            most = MOST.get(field.name, widest)
            if isinstance(number, float) and not math.isfinite(number):
                raise UsageError(f"{option} must be a finite number, not {number}")
            if abs(number) > most:
                raise UsageError(
                    f"{option} must be at most {most:,}{' in size' * (number < 0)}, not {shown(number)}"
                )


_WIDTHS = {"code", "width", "state_action_code"}
"""Beside the numbers in tuples, the fields of an agent that are widths of layers."""


def require_memory_for_networks(config: TrainConfig) -> None:
    """Refuses networks and batches that this machine's memory cannot hold, before any of them is made.

    What is counted is the least that they take, with observations and actions of one number.
    """
    agent: Any = config.agent
    encoder, seeds = getattr(agent, "encoder", None), config.seeds
    widest, parameters = _bounds(agent)
    work = 4 * seeds * agent.batch_size * (5 * agent.batches_per_iteration + widest)
    if encoder is not None:
        work += 4 * encoder.heads * encoder.token_count([*agent.actor_hidden, 1]) ** 2
    what = f"an update of {config.recipe} with {seeds} seed{'s' if seeds > 1 else ''}"
    require_memory(work, f"{what} (--batch-size, widths)")
    with contextlib.suppress(UsageError):  # then they are counted, which takes as long as to make them
        return require_memory(work + 4 * seeds * parameters, what)
    init = lambda seed: agent.init(EnvSpec(1, 1), jax.random.key(seed))
    state = jax.tree.leaves(jax.eval_shape(init, jax.ShapeDtypeStruct((), np.uint32)))
    parameters = sum(leaf.size * leaf.dtype.itemsize for leaf in state)
    require_memory(work + seeds * parameters, f"{what} (widths of its networks, members)")


def _bounds(agent: AbstractAgent) -> tuple[int, int]:
    """The width of an agent's widest layer, and a number of parameters, targets and moments that it stays below."""
    widths, layers, probes, blocks = [1], 3, 0, 0
    todo = [agent]
    while todo:
        options = todo.pop()
        for field in dataclasses.fields(options):
            value = getattr(options, field.name)
            if dataclasses.is_dataclass(value):
                todo.append(value)
            elif isinstance(value, tuple):
                layers += len(value)
                widths += [number for number in value if type(number) is int]
            elif field.name in _WIDTHS:
                widths.append(value)
        probes += getattr(options, "probes", 0)
        blocks += getattr(options, "depth", 0)
    widest = max(widths)
    networks = 2 * sum(getattr(agent, name, None) or 1 for name in ("members", "members", "critics"))
    return widest, 4 * networks * ((layers + 12 * blocks) * widest**2 + probes * widest)
