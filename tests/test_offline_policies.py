"""Policies in ONNX files and functions: the same policy in any form acts the same, in the units of its task."""

import numpy as np
import pytest

from fcritic.envs.base import ActionRange, Units
from fcritic.errors import UsageError
from fcritic.offline.candidates import Candidate
from fcritic.offline.gathering import read_policies
from fcritic.offline.interface import Interface, units_of

GAINS = np.array([[0.5, -1.0], [2.0, 0.0], [0.0, 4.0]], np.float32)
LOW, HIGH = np.array([-1.0, 0.0], np.float32), np.array([3.0, 10.0], np.float32)
OBS = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32)


def interface(obs_shape=(3,)) -> Interface:
    return Interface(3, units_of(obs_shape, LOW, HIGH), OBS)


def linear(obs: np.ndarray) -> np.ndarray:
    return obs @ GAINS


def expected(obs: np.ndarray) -> np.ndarray:
    """By hand: the task's actions in [-1, 1], cut at its bounds."""
    return np.clip(2 * (linear(obs) - LOW) / (HIGH - LOW) - 1, -1, 1)


def save(path, kind="FLOAT", batch="batch", metadata=None, extra=None, shape=(3,)):
    """A linear policy as an ONNX file."""
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    helper, element = onnx.helper, getattr(onnx.TensorProto, kind)
    numbers = onnx.numpy_helper.from_array(GAINS.astype(helper.tensor_dtype_to_np_dtype(element)), "gains")
    inputs, nodes = [helper.make_tensor_value_info("seen", element, [batch, *shape])], []
    flat = "seen"
    if len(shape) > 1:
        nodes.append(helper.make_node("Flatten", ["seen"], ["flat"]))
        flat = "flat"
    nodes.append(helper.make_node("MatMul", [flat, "gains"], ["act" if extra is None else "mean"]))
    if extra is not None:
        inputs.append(helper.make_tensor_value_info(extra, element, [batch, 2]))
        nodes.append(helper.make_node("Add", ["mean", extra], ["act"]))
    outputs = [helper.make_tensor_value_info("act", element, [batch, 2])]
    graph = helper.make_graph(nodes, "policy", inputs, outputs, [numbers])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)])
    model.ir_version = 8
    helper.set_model_props(model, metadata or {})
    path.write_bytes(model.SerializeToString())
    return path


def test_functions_act_in_the_units_of_the_task():
    (candidate,) = read_policies(linear, interface())
    assert (candidate.name, candidate.kind, candidate.stochastic) == ("linear", "function", False)
    np.testing.assert_allclose(candidate.act(OBS), expected(OBS), atol=1e-6)
    assert (abs(expected(OBS)) == 1).any()
    assert (abs(expected(OBS)) < 1).any()


def test_a_function_sees_observations_as_the_task_shows_them_and_cannot_change_them():
    def of_matrix(obs):
        assert obs.shape[1:] == (1, 3)
        found = linear(obs[:, 0])
        obs[:] = 0
        return found

    before = OBS.copy()
    (candidate,) = read_policies(of_matrix, interface((1, 3)))
    np.testing.assert_allclose(candidate.act(OBS), expected(OBS), atol=1e-6)
    np.testing.assert_array_equal(OBS, before)


@pytest.mark.parametrize(
    "options",
    [{}, {"kind": "DOUBLE"}, {"batch": 1}, {"batch": 7}, {"shape": (1, 3)}],
    ids=["float", "double", "one at a time", "seven at a time", "matrices"],
)
def test_an_onnx_file_acts_as_its_function(tmp_path, options):
    shape = options.get("shape", (3,))
    (candidate,) = read_policies(save(tmp_path / "policy.onnx", **options), interface(shape))
    assert (candidate.kind, candidate.stochastic) == ("onnx", False)
    np.testing.assert_allclose(candidate.act(OBS), expected(OBS), atol=1e-5)
    np.testing.assert_allclose(candidate.act(OBS[:1]), expected(OBS[:1]), atol=1e-5)


def test_metadata_may_say_that_actions_are_scaled_already(tmp_path):
    (candidate,) = read_policies(save(tmp_path / "policy.onnx", metadata={"actions": "[-1, 1]"}), interface())
    np.testing.assert_allclose(candidate.act(OBS), np.clip(linear(OBS), -1, 1), atol=1e-5)
    with pytest.raises(UsageError, match="its metadata say actions = "):
        read_policies(save(tmp_path / "odd.onnx", metadata={"actions": "degrees"}), interface())


def test_an_input_for_noise_makes_a_stochastic_policy(tmp_path):
    (candidate,) = read_policies(save(tmp_path / "policy.onnx", extra="noise"), interface())
    assert candidate.stochastic
    obs = np.zeros((4000, 3), np.float32)
    one, again, other = (candidate.act(obs, np.random.default_rng(seed)) for seed in (0, 0, 1))
    np.testing.assert_array_equal(one, again)
    assert (one != other).any()
    torque = ActionRange(LOW, HIGH).scale(one)[:, 0]
    inside = (torque > LOW[0]) & (torque < HIGH[0])
    assert inside.mean() == pytest.approx(0.84, abs=0.03)  # a normal number above -1, as nearly none is above 3
    assert np.median(torque) == pytest.approx(0, abs=0.08)
    with pytest.raises(UsageError, match="has a further input mask"):
        read_policies(save(tmp_path / "odd.onnx", extra="mask"), interface())


def test_a_file_that_does_not_fit_or_is_damaged_is_one_line(tmp_path):
    content = save(tmp_path / "policy.onnx").read_bytes()
    with pytest.raises(UsageError, match=r"policy.onnx failed: "):
        read_policies(tmp_path / "policy.onnx", Interface(2, Units.plain(spec_of(2, 2)), OBS[:, :2]))
    with pytest.raises(UsageError, match=r"policy.onnx returned actions of shape \(16, 2\)"):
        read_policies(tmp_path / "policy.onnx", Interface(3, Units.plain(spec_of(3, 5)), OBS))
    rng = np.random.default_rng(0)
    for number in range(20):
        (tmp_path / "damaged.onnx").write_bytes(content[: rng.integers(len(content))] if number else b"")
        with pytest.raises(UsageError) as told:
            read_policies(tmp_path / "damaged.onnx", interface())
        assert "\n" not in str(told.value)


def spec_of(obs_dim: int, act_dim: int):
    from fcritic.types import EnvSpec

    return EnvSpec(obs_dim, act_dim)


def test_two_of_one_name_are_told_apart():
    names = [candidate.name for candidate in read_policies([linear, linear, linear], interface())]
    assert names == ["linear", "linear (2)", "linear (3)"]


def test_answers_are_verified_whenever_a_policy_is_asked():
    """A policy may fail only in states that nobody tried before."""
    cliff = Candidate("cliff", "function", lambda obs, _: np.where(obs[:, :1] > 5, np.nan, 0.0))
    assert cliff.act(np.zeros((2, 3), np.float32)).tolist() == [[0.0], [0.0]]
    with pytest.raises(UsageError, match="cliff returned an action that holds NaN"):
        cliff.act(np.full((2, 3), 9, np.float32))
