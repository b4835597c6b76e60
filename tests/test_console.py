"""What a person sees: nothing when quiet, plain lines without a terminal, a live line in one."""

import os
import pty
import subprocess
import sys

import pytest

from fcritic.config import TrainConfig
from fcritic.training.console import TrainingConsole


@pytest.fixture
def config(tiny):
    return TrainConfig(tiny, task="probe-both", steps=1000, seeds=2)


def test_without_a_terminal_only_lasting_lines_are_printed(config, capsys):
    with TrainingConsole(config, 0) as console:
        console.update(100, loss=0.25)
        assert capsys.readouterr().err == ""
        console.evaluated(500, mean_actor=12.0, best_actor=15.5)
    (line,) = capsys.readouterr().err.splitlines()
    assert line.strip().startswith("500 of 1,000 frames")
    assert line.endswith("loss 0.25 · mean actor 12 · best actor 15.5")


def test_quiet_says_nothing(config, capsys):
    with TrainingConsole(config, 0, quiet=True) as console:
        console.evaluated(500, mean_actor=12.0, best_actor=15.5)
        console.say("hello")
    captured = capsys.readouterr()
    assert captured.out == captured.err == ""


def test_speed_counts_the_frames_of_all_seeds(config, monkeypatch):
    now = [100.0]
    monkeypatch.setattr("fcritic.training.console.time.monotonic", lambda: now[0])
    console = TrainingConsole(config, 0, quiet=True)
    console.restart_clock(200)
    now[0] += 4.0
    assert console.speed(240) == pytest.approx(2 * 40 / 4.0)


def test_a_terminal_shows_a_live_line():
    program = (
        "import time\nfrom fcritic.config import TrainConfig\n"
        "from fcritic.training.console import TrainingConsole\n"
        "with TrainingConsole(TrainConfig.of('fac-small', steps=1000), 0) as console:\n"
        "    console.update(123, loss=0.5); time.sleep(0.6)"
    )
    leader, follower = pty.openpty()
    subprocess.run([sys.executable, "-c", program], stderr=follower, env=os.environ | {"TERM": "xterm"}, check=True)
    os.close(follower)
    shown = os.read(leader, 100_000).decode()
    assert "123 of 1,000 frames" in shown and "loss 0.5" in shown
