"""A disk that fills up while a training runs."""

import json
import os
import re
import subprocess
import sys

import pytest

from fcritic.cli.dispatch import run as fcritic


def test_a_full_disk_ends_a_training_with_one_line(tmp_path):
    """Files may not grow beyond a few kilobytes here, as on a disk that fills up while training."""
    limit = "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000)); "
    program = limit + "import signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN); "
    program += "from fcritic.cli.dispatch import run; sys.exit(run(sys.argv[1:]))"
    command = ["train", "--recipe", "fac-small", "--task", "probe-both", "--steps", "400", "--members", "1"]
    done = subprocess.run(
        [sys.executable, "-c", program, *command, "--warmup", "400", "--out", str(tmp_path / "run")],
        capture_output=True,
        text=True,
        env=os.environ | {"JAX_COMPILATION_CACHE_DIR": str(tmp_path / "cache")},
    )
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    lines = done.stderr.splitlines()
    assert lines[-1].startswith("fcritic: cannot write") and "choose another --out" in lines[-1]


@pytest.fixture
def disk(tmp_path):
    """A file system of its own, of two megabytes."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(disk)], capture_output=True)
    if mounted.returncode:
        pytest.skip("only root can make a small file system")
    yield disk
    subprocess.run(["umount", "--lazy", str(disk)], check=True)


WIDE = """
import gymnasium as gym, numpy as np

class Wide(gym.Env):
    observation_space, action_space = gym.spaces.Box(-1, 1, (2000,)), gym.spaces.Box(-1, 1, (1,))

    def reset(self, seed=None, options=None):
        self.steps = 0
        return np.zeros(2000, np.float32), {}

    def step(self, action):
        self.steps += 1
        return np.full(2000, self.steps / 50, np.float32), 1.0, False, self.steps == 50, {}

make = Wide
"""


@pytest.mark.parametrize("save_every", [50, 300], ids=["resumable", "no earlier checkpoint"])
def test_where_only_the_replay_does_not_fit_the_weights_are_kept(disk, tmp_path, capsys, save_every):
    """Each step makes 8,000 bytes of replay at the least, 300 of them more than two megabytes."""
    (tmp_path / "wide.py").write_text(WIDE)
    out = str(disk / "run")
    sizes = ["--actor-hidden", "4", "--critic-hidden", "4", "--envs", "1", "--steps", "300", "--warmup", "300"]
    command = ["train", "--recipe", "td3", "--task", f"{tmp_path / 'wide.py'}:make", *sizes, "--eval-every", "300"]
    command += ["--save-every", str(save_every), "--quiet", "--out", out]
    assert fcritic(command) == 2
    line = capsys.readouterr().err.splitlines()[-1]
    assert "cannot write the replay" in line and "No space left on device" in line
    assert "checkpoints/step-000000000300: they can be evaluated and exported" in line
    subprocess.run(["mount", "-o", "remount,size=8m", str(disk)], check=True)
    if save_every == 300:
        assert fcritic(["evaluate", out, "--episodes", "1", "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["env_steps"] == 300
        assert fcritic(["export", out, "--episodes", "1", "--out", str(tmp_path / "agent")]) == 0
        capsys.readouterr()
        assert "without the replay it cannot be resumed" in line
        assert fcritic(["resume", out, "--quiet"]) == 2
        assert "holds weights without a replay" in capsys.readouterr().err
        return
    assert re.search(r"a resume goes on from step-0000000000(50|100|150)$", line)
    assert fcritic(["resume", out, "--quiet"]) == 0
    assert "holds weights without a replay, since no more fitted" in capsys.readouterr().err
    kept = sorted(path.name for path in (disk / "run" / "checkpoints").iterdir())
    assert kept == ["step-000000000250", "step-000000000300", "weights-step-000000000300"]
