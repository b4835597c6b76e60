"""The benches measure what they say: turns, ratios, a real worker; none of their figures is asserted."""

import subprocess
import sys
import time

import pytest

from benchmarks import loop, own_environment, peers, update
from fcritic.cli import bench as cli_bench
from fcritic.cli.dispatch import run
from fcritic.errors import UsageError
from fcritic.startup import backend

SLEEPER = """
import json, sys, time
print("welcome"); print(json.dumps({"versions": {"x": "1"}}), flush=True)
for line in sys.stdin:
    print(json.dumps({"steps": int(line), "seconds": int(line) * %s}), flush=True)
"""


class Clock:
    """A contender whose speed is known, and which notes when it had its turn."""

    def __init__(self, name, speed, order):
        self.name, self.speed, self.order, self.facts = name, speed, order, {}

    def steps_per_second(self, steps):
        self.order.append(self.name)
        return self.speed


def test_contenders_take_turns_in_changing_order(monkeypatch):
    monkeypatch.setattr(peers.time, "sleep", lambda seconds: None)
    order: list[str] = []
    contenders = {name: Clock(name, speed, order) for name, speed in [("a", 3.0), ("b", 2.0), ("c", 1.0)]}
    speeds = peers._take_turns(contenders, peers.Options(rounds=3, steps=1), lambda line: None)
    assert order == ["a", "b", "c", "b", "c", "a", "c", "a", "b"]
    assert speeds == {"a": [3.0] * 3, "b": [2.0] * 3, "c": [1.0] * 3}


def test_ratios_compare_the_same_round(monkeypatch):
    """Real processes that claim 10, 20 and 40 ms per step: twice and four times as fast, in every round."""
    pace = {"fcritic": 0.01, "sbx": 0.02, "sb3": 0.04}
    commands = {name: [sys.executable, "-c", SLEEPER % seconds] for name, seconds in pace.items()}
    monkeypatch.setattr(peers, "_commands", lambda *args: commands)
    monkeypatch.setattr(peers, "peers_python", lambda *args: sys.executable)
    monkeypatch.setattr(peers.time, "sleep", lambda seconds: None)
    report = peers.measure(peers.Options(rounds=2, steps=50))
    assert list(report)[:2] == ["sac", "td3"]
    assert report["sac"] == {"vs_sbx": 2.0, "vs_sb3": 4.0} == report["td3"]
    assert report["spread"]["td3"]["vs_sb3"] == [4.0, 4.0]
    assert report["contenders"]["sac"]["sb3"] == {"versions": {"x": "1"}}
    assert "fcritic is 2.00 times as fast" in peers.report_text(report)


def test_a_contender_that_dies_is_one_line():
    with pytest.raises(UsageError, match="no module for you"):
        peers.Contender([sys.executable, "-c", "raise SystemExit('no module for you')"])


def test_an_environment_that_cannot_be_built_is_one_line(tmp_path, monkeypatch):
    monkeypatch.setattr(peers, "REQUIREMENTS", ["no-such-package-of-ours==9.9"])
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(UsageError, match="--environment"):
        peers.peers_python(str(tmp_path / "env"), lambda line: None)


def test_the_own_worker_trains_when_asked():
    """A real process, the real loop, on a task that takes no time."""
    command = [sys.executable, "-m", "benchmarks.contenders.own", "sac", "probe-action", "20"]
    options = {"capture_output": True, "text": True, "timeout": 300, "check": True, "env": own_environment()}
    answer = subprocess.run(command, input="7\n", **options)
    facts, turn = [line for line in answer.stdout.splitlines() if line.startswith("{")]
    assert '"batch_size": 256' in facts and '"normalize": false' in facts
    assert '"steps": 7' in turn and '"seconds"' in turn


def test_the_update_bench_has_rows_with_floors():
    options = update.Options(recipes=("td3",), seeds=(1,), task="probe-action", rounds=2, seconds=0.0)
    report = update.measure(options)
    rows = {(row["recipe"], row["seeds"]): row for row in report["rows"]}
    assert list(rows) == [("sac", 1), ("td3", 1)]
    one = rows["td3", 1]
    assert rows["sac", 1]["times_sac"] == 1.0 and one["actor_updates"] == 0.5
    assert 0 < one["gigaflop"] < rows["sac", 1]["gigaflop"]
    assert all(row["device"] == report["device"] and row["precision"] == "float32" for row in report["rows"])
    for row in report["rows"]:  # on a busy machine the ceilings, which are measured before, may be too low
        floor = max(row["floor_ms_of_arithmetic"], row["floor_ms_of_traffic"])
        assert 0 < row["share_of_floor"] == pytest.approx(floor / row["ms_per_iteration"], rel=0.05)
    assert all(row["compile_seconds_cold"] >= 0 and row["peak_megabytes"] > 0 for row in report["rows"])
    assert "td3" in update.report_text(report)


def test_the_loop_bench_tells_frames_per_second_and_waiting():
    options = loop.Options("sac", "probe-action", seeds=2, envs=2, warmup=20, rounds=1, iterations=5)
    report = loop.measure(options)
    assert report["frames_per_second"] > 0 and 0 <= report["share_device_waits"] < 1
    parts = [report[f"seconds_{part}"] for part in ("of_imports", "to_build", "of_warmup")]
    assert min(parts) > 0 and sum(parts) - 0.02 < report["seconds_to_first_update"]
    assert 0 <= report["seconds_of_environments_in_warmup"] <= report["seconds_of_warmup"] + 0.01
    assert sum(parts[:2]) - 0.02 < report["seconds_to_programs"] < report["seconds_to_first_update"]
    assert "frames/s" in loop.report_text(report)


def test_the_device_is_woken_before_the_loop_is_imported(monkeypatch, capsys):
    called, load = [], cli_bench.module_of
    monkeypatch.setattr(backend, "wake_device", lambda: called.append("wake"))
    monkeypatch.setattr(cli_bench, "module_of", lambda path: called.append(path.stem) or load(path))
    with pytest.raises(UsageError, match="--rounds"):
        cli_bench.bench(["loop", "--rounds", "none"])
    with pytest.raises(SystemExit):
        cli_bench.bench(["loop", "--help"])
    assert called == ["wake", "loop", "loop"] and "--rounds" in capsys.readouterr().out


def test_the_clock_of_a_process_begins_before_its_imports(monkeypatch):
    code = (
        "import time; began = time.perf_counter(); time.sleep(0.5)\n"
        "from benchmarks.loop import seconds_since_start\n"
        "print(seconds_since_start(), time.perf_counter() - began)"
    )
    began = time.perf_counter()
    told = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=own_environment()
    ).stdout
    since_start, since_code = map(float, told.split())
    # The system counts in hundredths.
    assert 0.5 < since_code < since_start + 0.02 and since_start < time.perf_counter() - began + 0.02

    def no_such_file(*_, **__):
        raise FileNotFoundError

    monkeypatch.setattr(loop.Path, "read_text", no_such_file)  # as on other systems
    assert 0 < loop.seconds_since_start() <= time.perf_counter()


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["bench", "peer"], "did you mean peers?"),
        (["bench", "peers", "--rounds", "0"], "--rounds must be at least 1"),
        (["bench", "update", "--recipes", "sacc"], "did you mean sac"),
        (["bench", "update", "--round", "3"], "did you mean --rounds"),
    ],
)
def test_mistakes_are_one_line(args, words, capsys):
    assert run(args) == 2
    error = capsys.readouterr().err
    assert words in error and len(error.splitlines()) == 1


def test_without_a_name_the_benches_are_listed(capsys):
    assert run(["bench"]) == 0
    printed = capsys.readouterr().out
    assert all(f"\n  {name} " in printed for name in ("loop", "peers", "reliability", "update"))


BENCH = """
import dataclasses
from {package} import number

@dataclasses.dataclass(frozen=True)
class Options:
    times: int = 1
    out: str | None = None
    json: bool = False

def measure(options, say):
    return {{"found": options.times * number.NUMBER}}

def report_text(report):
    return f"found {{report['found']}}"
"""


def test_a_file_of_the_users_own_is_run_with_what_lies_beside_it(tmp_path, capsys):
    package = f"benches_{tmp_path.name}"  # modules outlive this test
    folder = tmp_path / package
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "number.py").write_text("NUMBER = 21")
    (folder / "own.py").write_text(BENCH.format(package=package))
    assert run(["bench", str(folder / "own.py"), "--times", "2"]) == 0
    assert capsys.readouterr().out == "found 42\n"
    (folder / "number_only.py").write_text("")
    assert run(["bench", str(folder / "number_only.py")]) == 2
    assert "has no Options" in capsys.readouterr().err


def test_benchmarks_are_not_looked_for_in_the_current_folder(tmp_path, monkeypatch, capsys):
    """Where the package lies alone, one line says what to name; a folder `benchmarks` here is left alone."""
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "pyproject.toml").write_text("")
    for name in ("__init__", "update"):
        (tmp_path / "benchmarks" / f"{name}.py").write_text("raise SystemExit('foreign code')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(cli_bench, "BESIDE", tmp_path / "site-packages")
    assert run(["bench", "update"]) == 2
    error = capsys.readouterr().err
    assert "path/to/benchmarks/NAME.py" in error and len(error.splitlines()) == 1
    assert run(["bench"]) == 0 and "path/to/benchmarks/NAME.py" in capsys.readouterr().out
