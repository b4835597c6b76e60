"""What a recipe is on a task: sizes, parameters per part, arithmetic, updates per frame."""

from typing import Any

import jax

from fcritic.config import TrainConfig
from fcritic.envs import task_spec
from fcritic.training.cost import flops_per_iteration


def describe(config: TrainConfig) -> dict[str, Any]:
    """The facts; nothing is trained and no parameter is made."""
    agent, spec = config.agent, task_spec(config.task)
    state = jax.eval_shape(lambda key: agent.init(spec, key), jax.eval_shape(lambda: jax.random.key(0)))
    flops = flops_per_iteration(agent, spec)
    critic, actor = config.updates_per_frame
    return {
        "recipe": config.recipe,
        "task": config.task,
        "observation_width": spec.obs_dim,
        "action_width": spec.act_dim,
        **agent.describe(spec),
        "parameters": {part: count(tree) for part, tree in agent.parts(state).items()},
        "envs": config.envs,
        "action_repeat": config.action_repeat,
        "flops_per_iteration": flops,
        "flops_per_frame": flops / config.frames_per_iteration,
        "updates_per_frame": {"critic": critic, "actor": actor},
        "warmup": config.warmup,
        "replay_per_env": config.replay,
        "normalize": config.normalize,
    }


def count(tree: Any) -> int:
    """Numbers in a pytree of arrays or shapes."""
    return sum(leaf.size for leaf in jax.tree.leaves(tree))


def describe_text(facts: dict[str, Any], line: str) -> str:
    """The facts for a person."""
    rows = [f"{facts['recipe']}: {line}"]
    for name, value in facts.items():
        label = name.replace("_", " ")
        if name == "parameters":
            rows += [f"  {'parameters of ' + part.replace('_', ' '):<38} {size:,}" for part, size in value.items()]
        elif name == "updates_per_frame":
            rows += [f"  {kind + ' updates per frame':<38} {rate:g}" for kind, rate in value.items()]
        elif name != "recipe":
            rows.append(f"  {label:<38} {_plain(value)}")
    return "\n".join(rows)


def _plain(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return ", ".join(str(item) for item in value)
    if isinstance(value, float) and value >= 1e6:
        return f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
