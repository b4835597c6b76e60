"""A tiny finished run that a stranger might send, built once, and the user's own files beside it."""

import dataclasses
import hashlib
import json
import os
from pathlib import Path
import shutil
import signal
import stat
import subprocess
import sys

import pytest

from fcritic.agents.td3 import TD3
from fcritic.config import TrainConfig
from fcritic.runs.checkpoint import MANIFEST, _manifest_hash
from fcritic.training.loop import train

ROOT = Path(__file__).parents[1]
SECONDS = 20


@pytest.fixture(scope="session")
def pristine(tmp_path_factory) -> Path:
    """Three saves of a ring that is full at the second: the newest two share few of the replay's files."""
    agent = TD3(actor_hidden=(4,), critic_hidden=(4,), batch_size=4)
    lengths = {"steps": 240, "warmup": 200, "replay": 80, "save_every": 60}
    config = TrainConfig(agent, recipe="td3", task="probe-both", seed=3, eval_every=80, log_every=80, **lengths)
    out = tmp_path_factory.mktemp("pristine") / "run"
    train(config, out, "fcritic train", quiet=True)
    return out


@dataclasses.dataclass
class Desk:
    """A stranger's run on somebody's machine."""

    run: Path
    mine: Path
    """The user's own files."""

    @staticmethod
    def fcritic(*words) -> subprocess.CompletedProcess:
        """A command in a process of its own, as a user types it."""
        return subprocess.run(
            [sys.executable, "-m", "fcritic", *map(str, words)],
            env=os.environ | {"PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"},
            capture_output=True,
            text=True,
            timeout=10 * SECONDS,
        )

    def outside(self) -> dict[str, str]:
        """A hash of everything around the run."""
        found = {}
        for path in sorted(self.mine.parent.rglob("*")):
            if path.is_relative_to(self.run):
                continue
            mode = path.lstat().st_mode
            content = hashlib.sha256(path.read_bytes()).hexdigest() if stat.S_ISREG(mode) else ""
            found[str(path)] = f"{mode} {content}"
        return found

    @property
    def newest(self) -> Path:
        return max((self.run / "checkpoints").glob("step-*"))

    def change_manifest(self, change, folder=None) -> None:
        """Changes a manifest and signs it, as a forger can."""
        path = (folder or self.newest) / MANIFEST
        manifest = json.loads(path.read_bytes())
        change(manifest)
        manifest["sha256"] = _manifest_hash(manifest)
        path.write_text(json.dumps(manifest))

    def sign(self, group: str, size: int) -> None:
        """Makes the newest manifest vouch for a size."""
        self.change_manifest(lambda manifest: manifest["groups"][group].update(bytes=size))


@pytest.fixture
def desk(pristine, tmp_path) -> Desk:
    shutil.copytree(pristine, tmp_path / "sent" / "run")
    mine = tmp_path / "mine"
    (mine / "home" / "step-000000000777.tmp-5").mkdir(parents=True)
    (mine / "home" / "step-000000000777.tmp-5" / "thesis.tex").write_text("mine")
    (mine / "replay").mkdir()
    (mine / "replay" / "rows-000000000000.f32").write_bytes(b"mine")
    for name in ("profile", "diary", "keep.html"):
        (mine / name).write_text("mine\n")
    return Desk(tmp_path / "sent" / "run", mine)


class Hangs(Exception):
    """A command that did not come back."""


@pytest.fixture
def no_hang():
    """Ends a test that waits for a pipe."""

    def stop(*_):
        raise Hangs

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(2 * SECONDS)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)
