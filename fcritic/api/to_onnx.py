"""A policy as an ONNX file, which acts without JAX: from the task's raw observations to the task's actions."""

import importlib.util
import os
from pathlib import Path
import tempfile
from typing import Any

import jax
import numpy as np

from fcritic.api.load import TrainedAgent
from fcritic.disk import Place
from fcritic.envs.base import ActionRange
from fcritic.errors import UsageError, writing
from fcritic.networks.mlp import MLP
from fcritic.networks.policies import DeterministicPolicy, GaussianPolicy
from fcritic.offline.apart import Apart
from fcritic.training.replay import CUT, SMALLEST_VARIANCE, Normalizer

OPSET, IR = 13, 8
"""Versions of ONNX, which runtimes of some years ago read."""

OBSERVATION, ACTION = "observation", "action"
"""The names of the input and of the output."""

MOST_DIFFERENT = 1e-3
"""Largest difference between an action of the file and of the agent, in half ranges, that counts as rounding."""


def to_onnx(agent: TrainedAgent, out: str | Path, actor: int | None = None) -> float:
    """Writes the file of one actor; returns by how much it differs from the agent, in halves of the actions' range.

    The input is a batch of the task's observations, flat where they have several parts. The file holds the
    normaliser, the network and the scaling of actions to the task's bounds.
    """
    require_place(out)
    content = encode(agent, actor)
    different = difference(agent, content, actor)
    if not different <= MOST_DIFFERENT:
        raise UsageError(f"{out} was not written: ONNX Runtime's actions differ by {different:g} of their range")
    place = Place.of(os.path.abspath(out))
    with writing("the policy", out):
        place.parent.make()
        place.replace(content)
    return different


def require_place(out: str | Path) -> None:
    """Refuses a name that is not of an ONNX file, and to write over anything."""
    if Path(out).suffix != ".onnx":
        raise UsageError(f"cannot write to {out}; give --onnx a name that ends in .onnx")
    if os.path.lexists(out):
        raise UsageError(f"{out} exists already; choose another --onnx")


def encode(agent: TrainedAgent, actor: int | None = None) -> bytes:
    """Returns the content of the file of one actor, by default of the one who acts."""
    onnx, actor = _library(), agent.actor if actor is None else actor
    policy, normalizer = agent.policy(actor), agent.policy_normalizer
    if not isinstance(policy, DeterministicPolicy | GaussianPolicy):
        raise UsageError(
            f"an actor of the kind {type(policy).__name__} cannot be written as ONNX, only the library's"
        )
    graph, actions = _Graph(onnx), agent.units.actions
    shape = agent.units.obs_shape or (agent.spec.obs_dim,)
    last = graph.add("Flatten", OBSERVATION, axis=1)
    last = last if normalizer is None else _normalized(graph, last, normalizer)
    last = _acted(graph, last, jax.device_get(policy))
    last = _scaled(graph, last, actions)
    graph.add("Reshape", last, np.array([-1, *actions.low.shape], np.int64), output=ACTION)
    floats = lambda name, shape: onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["batch", *shape])
    inputs, outputs = [floats(OBSERVATION, shape)], [floats(ACTION, actions.low.shape)]
    made = onnx.helper.make_graph(graph.nodes, "policy", inputs, outputs, graph.numbers)
    opsets = [onnx.helper.make_opsetid("", OPSET)]
    model = onnx.helper.make_model(made, opset_imports=opsets, ir_version=IR, producer_name="fcritic")
    config = agent.config
    facts = {"task": config.task, "recipe": config.recipe, "action_repeat": config.action_repeat}
    facts |= {"seed": agent.seed, "actor": actor, "frame": agent.frame, "actions": "task"}
    onnx.helper.set_model_props(model, {name: str(value) for name, value in facts.items()})
    return model.SerializeToString()


def difference(agent: TrainedAgent, content: bytes, actor: int | None = None, count: int = 1000) -> float:
    """Returns the largest difference between the file's actions and the agent's, in halves of their range.

    Observations are drawn as the normaliser has seen them.
    """
    with tempfile.TemporaryFile(buffering=0) as file:
        file.write(content)
        file.seek(0)
        session = Apart("onnx", file)
    ((_, _, shape), *_), *_ = _asked(session, "describe")[0]
    obs = np.random.default_rng(0).standard_normal((count, agent.spec.obs_dim))
    if agent.config.normalize:
        mean, variance = np.asarray(agent.normalizer.mean), np.asarray(agent.normalizer.variance)
        obs = mean + np.sqrt(variance) * obs
    obs = obs.astype(np.float32)
    given = obs.reshape(count, *shape[1:])
    _, (found,) = _asked(session, "run", [given], output=ACTION, names=[OBSERVATION])
    with jax.default_matmul_precision("float32"):  # a GPU rounds otherwise
        wanted = agent.act(obs, actor)
    half = agent.units.actions.half_range.reshape(agent.units.actions.low.shape)
    return float(np.max(np.abs(found.astype(np.float64) - wanted) / np.where(half > 0, half, 1.0)))


def _asked(session: Apart, *words: Any, **facts: Any) -> Any:
    try:
        return session.ask(*words, **facts)
    except ValueError as error:
        raise UsageError(f"the file could not be checked: ONNX Runtime {error}") from error


class _Graph:
    """Nodes one after another; a node's output is named by its place, numbers by their node's."""

    def __init__(self, onnx: Any):
        self.nodes, self.numbers, self._onnx = [], [], onnx

    def add(self, kind: str, *inputs: str | np.ndarray, output: str = "", **attributes: Any) -> str:
        """Adds a node and returns the name of its output; arrays among its inputs become numbers of the file."""
        name, names = output or f"{kind.lower()}_{len(self.nodes)}", []
        for place, each in enumerate(inputs):
            if not isinstance(each, str):
                self.numbers.append(self._onnx.numpy_helper.from_array(np.asarray(each), f"{name}.{place}"))
                each = f"{name}.{place}"
            names.append(each)
        self.nodes.append(self._onnx.helper.make_node(kind, names, [name], **attributes))
        return name


def _normalized(graph: _Graph, last: str, normalizer: Normalizer) -> str:
    """`Normalizer.__call__`."""
    mean, variance = np.asarray(normalizer.mean), np.asarray(normalizer.variance)
    last = graph.add("Sub", last, mean)
    last = graph.add("Div", last, np.sqrt(variance + np.float32(SMALLEST_VARIANCE)))
    return graph.add("Clip", last, np.float32(-CUT), np.float32(CUT))


def _acted(graph: _Graph, last: str, policy: DeterministicPolicy | GaussianPolicy) -> str:
    """The action in [-1, 1], as calling the policy gives it."""
    if isinstance(policy, GaussianPolicy):
        return graph.add("Tanh", _network(graph, last, policy.network, policy.act_dim))
    last = _network(graph, last, policy.network)
    if policy.reach is not None:  # as `DeterministicPolicy.squashed`
        size = graph.add("ReduceMean", graph.add("Abs", last), axes=[1], keepdims=1)
        size = graph.add("Div", size, np.float32(policy.reach))
        last = graph.add("Div", last, graph.add("Max", size, np.float32(1)))
    return graph.add("Tanh", last)


def _network(graph: _Graph, last: str, network: MLP, outputs: int | None = None) -> str:
    """The network's output, or the first of its outputs."""
    for layer in network.layers[:-1]:
        last = graph.add("Relu", graph.add("Gemm", last, np.asarray(layer.weight), np.asarray(layer.bias)))
    ends = network.layers[-1]
    return graph.add("Gemm", last, np.asarray(ends.weight)[:, :outputs], np.asarray(ends.bias)[:outputs])


def _scaled(graph: _Graph, last: str, actions: ActionRange) -> str:
    """`ActionRange.scale`, in single precision throughout, as accelerators have no other."""
    single = lambda numbers: np.asarray(numbers, np.float32).ravel()
    last = graph.add("Mul", last, single(actions.half_range))
    last = graph.add("Add", last, single(actions.centre))
    return graph.add("Min", graph.add("Max", last, single(actions.low)), single(actions.high))


def _library() -> Any:
    try:
        import onnx
    except ImportError:
        onnx = None
    if onnx is None or importlib.util.find_spec("onnxruntime") is None:
        raise UsageError("ONNX needs packages that are not installed; run: pip install 'fcritic[onnx]'")
    return onnx
