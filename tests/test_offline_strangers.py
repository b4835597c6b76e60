"""Data and policies of strangers that libraries in C read: confined, with little memory and time, and one line."""

import os
from pathlib import Path
import resource
import signal
import subprocess
import sys
import time
import zipfile

from logged_data import episodes, save
import numpy as np
import pytest

from benchmarks.attacks.sent_cases import _minari_folder, cases
from benchmarks.attacks.stranger_cases import Scene
from fcritic.disk import Place
from fcritic.envs.base import Units
from fcritic.errors import UsageError
from fcritic.offline.apart import Apart
from fcritic.offline.gathering import read_policies
from fcritic.offline.interface import Interface
from fcritic.offline.reading import read_logs
from fcritic.types import EnvSpec

SEEN = Interface(2, Units.plain(EnvSpec(2, 1)), np.zeros((4, 2), np.float32))


@pytest.fixture
def scene(tmp_path) -> Scene:
    """A place for what is sent."""
    found = Scene(tmp_path / "around", tmp_path / "planted", tmp_path / "out")
    found.sent.parent.mkdir(parents=True)
    found.work.mkdir(parents=True)
    return found


def attack(scene: Scene, kind: str, name: str) -> str:
    """Makes what the corpus of attacks has by this name."""
    next(case for case in cases() if (case.kind, case.name) == (kind, name)).attack(scene)
    return str(scene.sent)


def most_memory(kind: str, name: str, folder: str) -> int:
    """The most that a child of this process ever had, in kB, once it has read an attack that is refused."""
    scene = Scene(*(Path(folder, part) for part in ("around", "planted", "out")))
    scene.sent.parent.mkdir(parents=True)
    sent = attack(scene, kind, name)
    with pytest.raises(UsageError):
        read_logs(sent) if kind == "sent, hdf5" else read_policies(sent, SEEN)
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss


@pytest.mark.parametrize(
    ("kind", "name"),
    [("sent, hdf5", "a piece that unpacks to 4 GiB"), ("sent, onnx", "a constant of 8 GiB")],
)
def test_a_file_that_asks_for_gigabytes_gets_little_memory(tmp_path, kind, name):
    """Asked by a new process: a child of this one begins with the memory that all tests before have taken."""
    code = (
        f"from test_offline_strangers import most_memory; print(most_memory({kind!r}, {name!r}, {str(tmp_path)!r}))"
    )
    here = Path(__file__).parent
    own = os.environ | {"PYTHONPATH": str(here.parent)}
    done = subprocess.run([sys.executable, "-c", code], cwd=here, env=own, capture_output=True, check=True)
    assert 10_000 < int(done.stdout.split()[-1]) <= 2 * 2**20


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("numbers in a pipe", "rewards lies in another file"),
        ("a link to a pipe", "rewards is a link"),
        ("a view of another file", "rewards lies in another file"),
        ("episode_0: a link to a pipe", "episode_0 is a link"),
        ("a piece that unpacks to 4 GiB", "rewards cannot be read"),
    ],
)
def test_an_hdf5_file_leads_nowhere(scene, name, line):
    with pytest.raises(UsageError, match=line):
        read_logs(attack(scene, "sent, hdf5", name))


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("a header of 4 GiB", "its header has 4,294,967,295 bytes"),
        ("a nested header", "its header is no list of facts"),
        ("a header of signs", "its header is no list of facts"),
        ("observations of 500 MB from few bytes", "would unpack to"),
        ("a million names", "its list of contents has more than"),
        (f"packed in way {zipfile.ZIP_LZMA}", "is packed in another way"),
    ],
)
def test_an_archive_is_not_believed(scene, name, line):
    with pytest.raises(UsageError, match=line):
        read_logs(attack(scene, "sent, arrays", f"NPZ: {name}"))


def test_well_packed_data_are_read(tmp_path):
    """What is alike packs well: flags to a thousandth, and no honest data all to a two-hundredth."""
    rng, count = np.random.default_rng(0), 300_000
    fields = {
        "observations": rng.normal(size=(count, 20)).astype(np.float32),
        "rewards": np.zeros(count, np.float32),
    }
    fields |= {"actions": np.zeros((count, 6), np.float32), "terminals": np.zeros(count, bool)}
    with pytest.warns(UserWarning, match="neither timeouts"):
        assert len(read_logs(save(tmp_path / "data.npz", fields))) == count - 1


@pytest.mark.parametrize("name", ["an episode in another file", "rewards in another file", "a space of text"])
def test_a_minari_dataset_leads_nowhere(scene, name):
    with pytest.raises(UsageError, match=r"is a link|has the type 'U1000000000'"):
        read_logs(attack(scene, "sent, minari", name))


def test_a_linked_folder_of_minari_is_none(tmp_path):
    _minari_folder(tmp_path / "mine")
    assert len(read_logs(tmp_path / "mine")) == 6
    (tmp_path / "sent").mkdir()
    (tmp_path / "sent" / "data").symlink_to(tmp_path / "mine" / "data")
    with pytest.raises(UsageError, match="is a link or not a folder"):
        read_logs(tmp_path / "sent")


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("weights in a file beside", "its weights lie in another file; save it as one file"),
        ("weights in memory", "cannot be read as ONNX"),
        ("a constant of 8 GiB", "failed: "),
        ("a loop without end", "it takes too long"),
    ],
)
def test_an_onnx_file_can_read_nothing_and_ends(scene, name, line):
    begun = time.process_time()
    with pytest.raises(UsageError, match=line):
        read_policies(attack(scene, "sent, onnx", name), SEEN)
    assert time.process_time() - begun < 5  # of this process: the other one is ended


def test_onnx_runtime_keeps_no_identifier_in_the_users_home(scene, monkeypatch):
    monkeypatch.setenv("HOME", str(scene.home))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    (policy,) = read_policies(attack(scene, "sent, honest", "an ONNX file"), SEEN)
    assert policy.act(np.ones((3, 2), np.float32)).tolist() == [[1.0]] * 3
    assert list(scene.home.rglob("*")) == [scene.work]


def test_a_library_that_crashes_is_one_line(tmp_path):
    with Place.of(save(tmp_path / "data.hdf5", episodes())).reading() as file:
        apart = Apart("hdf5", file)
    assert apart.ask("describe", path=["rewards"]) == ([[9], "<f4"], [])
    os.kill(apart._process.pid, signal.SIGSEGV)
    with pytest.raises(ValueError, match="it breaks the library that reads it"):
        apart.ask("describe", path=["rewards"])


def test_the_other_process_opens_and_writes_nothing_and_ends_with_its_file(tmp_path):
    with Place.of(save(tmp_path / "data.hdf5", episodes())).reading() as file:
        apart = Apart("hdf5", file)
    apart.ask("describe", path=["rewards"])
    process = apart._process.pid
    limits = {
        line[:26].strip(): line[26:].split()[0] for line in Path(f"/proc/{process}/limits").read_text().splitlines()
    }
    assert limits["Max file size"] == limits["Max core file size"] == "0"
    taken = {int(name) for name in os.listdir(f"/proc/{process}/fd")}
    assert taken >= set(range(int(limits["Max open files"])))  # none is free
    assert os.readlink(f"/proc/{process}/cwd") == "/"
    del apart
    assert not Path(f"/proc/{process}").exists()
