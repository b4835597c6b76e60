"""Files with a user's code, and a list of trusted ones that is the test's own."""

import sys

import pytest

CODE = """
import gymnasium
from beside import LENGTH

class Robots:
    @staticmethod
    def pendulum():
        return gymnasium.make("Pendulum-v1", max_episode_steps=LENGTH)

def many(num_envs):
    return gymnasium.make_vec("Pendulum-v1", num_envs=num_envs, max_episode_steps=LENGTH)

def broken():
    return 1 / 0

number = 3
"""


@pytest.fixture(autouse=True)
def own_home(tmp_path, monkeypatch):
    """The list of trusted files is this test's own."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


@pytest.fixture
def code(tmp_path, monkeypatch):
    folder = tmp_path / "code"
    folder.mkdir()
    (folder / "my_robots.py").write_text(CODE)
    (folder / "beside.py").write_text("LENGTH = 7\n")
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield folder
    for name in [each for each in sys.modules if each in ("my_robots", "beside") or "my_robots" in each]:
        sys.modules.pop(name)
