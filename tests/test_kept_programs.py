"""Programs that were traced once are read by the next process, and are the same."""

import dataclasses
import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from short_trainings import SPEC

from fcritic.agents.recipes import find_recipe
from fcritic.agents.sac import SAC
from fcritic.runs.fingerprint import fingerprint
from fcritic.startup import programs as kept_programs
from fcritic.training import replay
from fcritic.training.device import Device, Learning
from fcritic.types import Transition

ROW = jax.ShapeDtypeStruct((3,), np.float32)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Where programs are kept during a test."""
    monkeypatch.setenv(kept_programs.SWITCH, "yes")
    before = jax.config.jax_compilation_cache_dir
    jax.config.update("jax_compilation_cache_dir", str(tmp_path / "cache"))
    yield tmp_path / "cache" / kept_programs.FOLDER
    jax.config.update("jax_compilation_cache_dir", before)


@pytest.fixture
def learning() -> Learning:
    agent = dataclasses.replace(find_recipe("sac"), actor_hidden=(8,), critic_hidden=(9,), batch_size=5)
    return Learning(agent, SPEC, envs=2, capacity=20, normalize=True, recency=8.0)


class Doubling:
    """A function that counts how often it is traced."""

    def __init__(self, name: str = "double"):
        self.name, self.traced = name, 0

    def __call__(self, rows):
        self.traced += 1
        return (2 * rows,)

    def result(self):
        """Of a process that begins now."""
        fresh = jax.jit(lambda rows: kept_programs.call(self, (self.name,), rows)[0])
        return np.asarray(fresh(np.arange(3, dtype=np.float32)))


# What is kept


def test_a_kept_program_is_not_traced_again(folder):
    first, second, other = Doubling(), Doubling(), Doubling("another")
    for function, traced in ((first, 1), (second, 0), (other, 1)):
        np.testing.assert_array_equal(function.result(), [0, 2, 4])
        assert function.traced == traced
    assert len(list(folder.iterdir())) == 2  # no temporary file


def test_nothing_is_kept_unless_it_is_wanted(folder, monkeypatch):
    monkeypatch.setenv(kept_programs.SWITCH, "no")
    Doubling().result()
    monkeypatch.delenv(kept_programs.SWITCH)  # as in a script of somebody's own
    Doubling().result()
    monkeypatch.setenv(kept_programs.SWITCH, "yes")
    jax.config.update("jax_enable_compilation_cache", False)
    Doubling().result()
    jax.config.update("jax_enable_compilation_cache", True)
    jax.config.update("jax_compilation_cache_dir", None)
    Doubling().result()
    assert not folder.exists()


def spoiled(content: bytes) -> dict[str, bytes]:
    flipped = content[:100] + bytes([content[100] ^ 1]) + content[101:]
    return {"empty": b"", "cut": content[:-7], "flipped": flipped, "foreign": b"\x7fELF" * 100}


@pytest.mark.parametrize("how", ["empty", "cut", "flipped", "foreign"])
def test_a_damaged_file_is_traced_and_written_again(folder, how):
    Doubling().result()
    (path,) = folder.iterdir()
    content = path.read_bytes()
    path.write_bytes(spoiled(content)[how])
    again = Doubling()
    np.testing.assert_array_equal(again.result(), [0, 2, 4])
    assert again.traced == 1 and path.read_bytes() == content


def test_a_folder_that_cannot_be_written_is_no_error(folder):
    folder.parent.mkdir()
    folder.write_text("in the way")
    function = Doubling()
    np.testing.assert_array_equal(function.result(), [0, 2, 4])
    assert function.traced == 1 and folder.read_text() == "in the way"


def test_a_function_that_cannot_be_exported_runs_as_it_is(folder):
    def on_the_host(rows):
        return (jax.pure_callback(lambda own: np.asarray(own) + 1, ROW, rows),)

    run = jax.jit(lambda rows: kept_programs.call(on_the_host, ("host",), rows)[0])
    np.testing.assert_array_equal(run(jnp.arange(3.0)), [1, 2, 3])
    assert not folder.exists()


def test_what_is_wrong_with_a_function_is_told_as_ever(folder):
    def wrong(rows):
        return (rows + jnp.zeros(4),)

    with pytest.raises(TypeError, match=r"add got incompatible shapes"):
        jax.jit(lambda rows: kept_programs.call(wrong, ("wrong",), rows))(jnp.zeros(3))


# What decides


def test_all_that_decides_a_program_is_in_its_name(folder, learning, monkeypatch):
    path = lambda *decided_by, shapes=ROW: kept_programs._path(decided_by, shapes)
    again = dataclasses.replace(learning, agent=dataclasses.replace(learning.agent))
    assert path(learning, (True,)) == path(again, (True,))
    found = [path(learning, (True,)), path(learning, (False,)), path(learning, (True,), shapes=(ROW, ROW))]
    found.append(path(dataclasses.replace(learning, agent=dataclasses.replace(learning.agent, tau=0.1)), (True,)))
    found.append(path(dataclasses.replace(learning, capacity=11), (True,)))
    with jax.enable_x64(True):
        found.append(path(learning, (True,)))
    with jax.default_matmul_precision("highest"):
        found.append(path(learning, (True,)))
    for changed, value in (
        ("_IMPORTED", "other sources"),
        ("kernels.INTERPRET", True),
        ("jaxlib.__version__", "0.0.1"),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(f"fcritic.startup.programs.{changed}", value)
            found.append(path(learning, (True,)))
    with monkeypatch.context() as patch:
        patch.setenv("XLA_FLAGS", "--xla_gpu_deterministic_ops=true")
        found.append(path(learning, (True,)))
    assert len(set(found)) == 11 and None not in found


def test_nothing_is_kept_once_the_sources_have_changed(tmp_path, monkeypatch):
    """A process that runs the old code must not leave its program under the name of the new."""
    program = jax.export.export(jax.jit(lambda x: x + 1))(jax.ShapeDtypeStruct((), np.float32))
    kept_programs._write(tmp_path / "first", program)
    monkeypatch.setattr(kept_programs, "_IMPORTED", "sources as they were")
    kept_programs._write(tmp_path / "second", program)
    assert [path.name for path in tmp_path.iterdir()] == ["first"]


def test_every_source_decides(tmp_path):
    (tmp_path / "deep").mkdir()
    hashes = []
    for name, text in (("a.py", "1"), ("deep/b.py", "1"), ("deep/b.py", "2"), ("deep/c.py", "2")):
        (tmp_path / name).write_text(text)
        hashes.append(kept_programs._sources(tmp_path))
    (tmp_path / "deep" / "notes.txt").write_text("no code")
    assert kept_programs._sources(tmp_path) == hashes[-1]
    assert len(set(hashes)) == 4
    assert kept_programs._sources(tmp_path / "nowhere") is None


def test_agents_from_elsewhere_are_not_kept(folder, learning):
    @dataclasses.dataclass(frozen=True)
    class Own(SAC):
        pass

    assert kept_programs._path((learning,), ROW) is not None
    assert kept_programs._path((dataclasses.replace(learning, agent=Own()),), ROW) is None


# Programs of a training


@pytest.mark.parametrize("recipe", ["tiny fac", "sac"])
def test_updates_take_over_their_arrays(recipe, learning, tiny):
    if recipe == "tiny fac":
        learning = dataclasses.replace(learning, agent=tiny)
    device = Device(learning, learning.start([1, 2]))
    lowered = device.lowered(learning.agent.actor_due(0))
    assert "call_exported" in lowered.as_text()
    sizes = lowered.compile().memory_analysis()
    before = device.leaves
    everything = sum(leaf.nbytes for leaf in before)
    assert sizes.alias_size_in_bytes >= everything
    rows = lambda *rest: np.ones((2, 2, *rest), np.float32)
    step = Transition(rows(SPEC.obs_dim), rows(SPEC.act_dim), rows(), rows(), rows(SPEC.obs_dim))
    assert replay.pack(step).shape == (2, 2, replay.width_of(SPEC))
    device.learn(step, 0)
    assert all(leaf.is_deleted() for leaf in before)


def test_a_second_start_traces_nothing_and_trains_the_same(tmp_path):
    command = [sys.executable, "-m", "fcritic", "train", "--recipe", "td3", "--task", "probe-delay", "--quiet"]
    command += ["--actor-hidden", "8", "--critic-hidden", "9", "--batch-size", "5", "--warmup", "15"]
    command += ["--steps", "24", "--replay", "40", "--log-every", "4"]
    surroundings = os.environ | {"JAX_COMPILATION_CACHE_DIR": str(tmp_path / "cache"), "JAX_LOG_COMPILES": "1"}
    prints, traced = [], []
    for name, kept in (("first", "yes"), ("second", "yes"), ("without", "no")):
        out = str(tmp_path / name)
        surroundings[kept_programs.SWITCH] = kept
        done = subprocess.run([*command, "--out", out], env=surroundings, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        traced.append([done.stderr.count(f"Compiling jit({program})") for program in ("_acted", "_learned")])
        prints.append(fingerprint(out))
    assert traced == [[1, 2], [0, 0], [1, 2]]
    assert prints[0] == prints[1] == prints[2]
