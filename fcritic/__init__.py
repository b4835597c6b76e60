"""Functional critics for off-policy actor-critic: Q(policy, state, action).

The names below are the library. They are imported when first used, so that `fcritic --help` need not wait.
"""

from importlib import import_module
from typing import Any

_HOMES = {
    "FAC": "fcritic.agents.fac",
    "find_recipe": "fcritic.agents.recipes",
    "register": "fcritic.agents.recipes",
    "TrainConfig": "fcritic.config",
    "EncoderConfig": "fcritic.networks.actor_encoder",
    "FunctionalCritic": "fcritic.networks.critics",
    "ValueHead": "fcritic.networks.critics",
    "FunctionPolicy": "fcritic.networks.policies",
    "DeterministicPolicy": "fcritic.networks.policies",
    "Policy": "fcritic.networks.policies",
    "check": "fcritic.envs.check",
    "configure": "fcritic.api.train",
    "train_agent": "fcritic.api.train",
    "Moment": "fcritic.api.callback",
    "load": "fcritic.api.load",
    "TrainedAgent": "fcritic.api.load",
    "to_onnx": "fcritic.api.to_onnx",
    "read_logs": "fcritic.offline.reading",
    "read_policies": "fcritic.offline.gathering",
    "Dataset": "fcritic.offline.dataset",
    "Candidate": "fcritic.offline.candidates",
    "Evaluator": "fcritic.offline.evaluation",
    "EvaluatorConfig": "fcritic.agents.evaluator",
    "UsageError": "fcritic.errors",
}

__all__ = list(_HOMES)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'fcritic' has no attribute '{name}'")
    return getattr(import_module(_HOMES[name]), name)
