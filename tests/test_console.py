"""What a person sees: nothing when quiet, plain lines without a terminal, a live line in one."""

import dataclasses
import os
import pty
import subprocess
import sys
import time

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


def test_silence_without_a_terminal_is_broken(config, capsys, monkeypatch):
    """Also while the loop itself is waiting, as for a program that is compiled."""
    monkeypatch.setattr("fcritic.training.console.SILENCE", 0.2)
    with TrainingConsole(config, 0) as console:
        console.update(100, loss=0.25)
        time.sleep(0.7)
        assert 1 <= capsys.readouterr().err.count("100 of 1,000 frames") <= 3
    time.sleep(0.3)
    assert capsys.readouterr().err == ""


def test_a_run_that_goes_on_shows_its_frame_and_no_speed_before_its_first_iteration(config, capsys, monkeypatch):
    monkeypatch.setattr("fcritic.training.console.SILENCE", 0.05)
    with TrainingConsole(dataclasses.replace(config, warmup=100), 0) as console:
        console.restart_clock(600)
        time.sleep(0.1)
    assert {line.strip() for line in capsys.readouterr().err.splitlines()} == {
        "600 of 1,000 frames · compiling the update for 0 s"
    }


def test_a_wait_for_a_program_is_told_by_its_time_alone(config, capsys, monkeypatch):
    """The same numbers again and again say nothing; once learning has begun the phase is gone."""
    monkeypatch.setattr("fcritic.training.console.SILENCE", 0.6)
    with TrainingConsole(dataclasses.replace(config, warmup=100), 0) as console:
        console.evaluated(100, mean_actor=12.0, best_actor=15.5)
        time.sleep(1.5)
        console.restart_clock(101, learning=True)
        console.evaluated(200, mean_actor=13.0, best_actor=15.5)
    first, *waiting, last = [line.strip() for line in capsys.readouterr().err.splitlines()]
    assert first == "100 of 1,000 frames · compiling the update · mean actor 12 · best actor 15.5"
    assert waiting == [f"100 of 1,000 frames · compiling the update for {seconds} s" for seconds in (1, 1)]
    assert last.startswith("200 of 1,000 frames") and "compiling" not in last


def test_time_left_is_told_once_learning_has_begun(config, capsys, monkeypatch):
    now = [100.0]
    monkeypatch.setattr("fcritic.training.console.time.monotonic", lambda: now[0])
    config = dataclasses.replace(config, warmup=100)
    console = TrainingConsole(config, 0)
    console.restart_clock(0)
    for frame, learning in [(40, False), (100, False), (101, True)]:
        now[0] += 20.0
        if learning:
            console.restart_clock(frame, learning=True)
            now[0] += 10.0
            frame += 30
        console.evaluated(frame, 1.0, 1.0)
    said = [line.split(" · mean")[0].strip() for line in capsys.readouterr().err.splitlines()]
    assert said == [
        "40 of 1,000 frames · warm-up",
        "100 of 1,000 frames · compiling the update",
        "131 of 1,000 frames · 6 frames/s · 5 min left",
    ]


def test_whoever_speaks_is_not_interrupted(config, capsys):
    with TrainingConsole(config, 0) as console:
        for _ in range(3):
            time.sleep(0.1)
            console.say("a line")
    assert capsys.readouterr().err == "a line\n" * 3


def test_quiet_says_nothing(config, capsys, monkeypatch):
    monkeypatch.setattr("fcritic.training.console.SILENCE", 0.05)
    with TrainingConsole(config, 0, quiet=True) as console:
        time.sleep(0.2)
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
