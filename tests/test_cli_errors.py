"""Mistakes on the command line: one line that says what to change, exit code 2, nothing lost or left behind."""

import os
from pathlib import Path
import random
import subprocess
import sys

import pytest

from fcritic.agents.recipes import RECIPES
from fcritic.cli.commands import TrainOptions
from fcritic.cli.dispatch import COMMANDS, run
from fcritic.cli.parsing import option_names
from fcritic.config import TrainConfig
from fcritic.runs.directory import RunDirectory

ROOT = Path(__file__).parents[1]
AGENT = RECIPES["fac-small"][0]
CONFIG = TrainConfig(AGENT, recipe="fac-small", task="probe-both")


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    """A directory with a run that has begun, a file and somebody's folder; everything stays as it is."""
    monkeypatch.chdir(tmp_path)
    RunDirectory.create_or_open(tmp_path / "begun", CONFIG.to_json(), "fcritic train").close()
    (tmp_path / "file").write_text("mine")
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "main.tex").write_text("mine")
    before = contents(tmp_path)
    yield tmp_path
    assert contents(tmp_path) == before


def contents(folder):
    paths = sorted(Path(folder).rglob("*"))
    return {str(path): path.read_bytes() if path.is_file() else None for path in paths}


def complaint(capsys, args):
    """What a command says, on exactly one line."""
    assert run(args) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("fcritic: ") and err.endswith("\n") and err.count("\n") == 1
    assert "Traceback" not in err
    return err.removeprefix("fcritic: ").rstrip("\n")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("tran", "unknown command 'tran'; did you mean train?"),
        ("xyz", "unknown command 'xyz'; known are train, "),
        ("train --recipe fac-smal", "unknown recipe 'fac-smal'; did you mean fac-small?"),
        ("train --recipe fac-small --recipe=x", "unknown recipe 'x'; known are fac, "),
        ("train --task cheeta-run", "unknown task 'cheeta-run'; did you mean cheetah-run?"),
        ("train --task probe-bot", "unknown task 'probe-bot'; did you mean probe-both?"),
        ("train --task pendulum-v1", "unknown task 'pendulum-v1'; did you mean Pendulum-v1?"),
        ("train --task CartPole-v1", "CartPole-v1 has the actions Discrete(2); choose a task with continuous ones"),
        ("train --task probe-both --action-repeat 2", "probe-both has known values for action_repeat 1 only"),
        ("train --sead 1", "unknown option --sead; did you mean --seed?"),
        ("train --probe-scale=1", "unknown option --probe-scale; did you mean --encoder.probe-scale?"),
        ("evaluate begun --episode 3", "unknown option --episode; did you mean --episodes?"),
        ("evaluate begun --recipe fac", "unknown option --recipe; see fcritic evaluate --help"),
        ("train extra", "unexpected argument extra; see fcritic train --help"),
        ("train fac-shared", "unexpected argument fac-shared; did you mean --recipe fac-shared?"),
        ("train cheetah-run", "unexpected argument cheetah-run; did you mean --task cheetah-run?"),
        ("describe sac++", "unexpected argument sac++; did you mean --recipe sac+?"),
        ("evaluate begun file", "unexpected argument file; see fcritic evaluate --help"),
        ("train --normalize false", "unexpected argument false; see fcritic train --help"),
        ("train --steps ten", "--steps must be a whole number, not 'ten'; see fcritic train --help"),
        ("train --steps 1.5", "--steps must be a whole number, not '1.5'; see fcritic train --help"),
        ("resume begun --steps ten", "--steps must be a whole number, not 'ten'; see fcritic resume --help"),
        ("train --tau much", "--tau must be a number, not 'much'; see fcritic train --help"),
        ("train --explore.noise x", "--explore.noise must be a number, not 'x'; see fcritic train"),
        ("train --actor-hidden 8 x", "--actor-hidden cannot be '8', 'x'; see fcritic train --help"),
        ("train --pairing none", "--pairing must be one of 'fixed', 'mean', not 'none'; see "),
        ("check Pendulum-v1 --env-timeout 1e308", "--env-timeout must be at most 1e+06, not 1e+308"),
        ("train --envs 0", "--envs must be at least 1, not 0"),
        ("train --seeds -1", "--seeds must be at least 1, not -1"),
        ("train --seed -1", "--seed must be at least 0, not -1"),
        ("train --actor-last-scale -1", "--actor-last-scale must be at least 0, not -1"),
        ("train --learning-rate nan", "--learning-rate must be a finite number, not nan"),
        ("train --tau 2", "--tau must be in [0, 1], not 2"),
        ("train --discount 1", "--discount must be in [0, 1), not 1"),
        ("train --encoder.heads 3", "--encoder.width 32 must be a multiple of --encoder.heads 3"),
        ("resume begun --steps 0", "--steps must be at least 1, not 0"),
        ("evaluate begun --episodes 0", "--episodes must be at least 1, not 0"),
        ("train --out", "--out needs a value; see fcritic train --help"),
        ("train --recipe", "--recipe needs a value; see fcritic train --help"),
        ("describe --task", "--task needs a value; see fcritic describe --help"),
        ("evaluate", "DIR is missing: fcritic evaluate DIR; see fcritic evaluate --help"),
        ("resume --quiet", "DIR is missing: fcritic resume DIR; see fcritic resume --help"),
        ("plot", "name at least one run to plot: fcritic plot DIR"),
        ("train --task probe-both --out begun", "begun holds a run with another configuration: "),
        ("train --task probe-both --out file", "cannot write the run to file: File exists; move what"),
        ("train --task probe-both --out file/run", "cannot write the run to file/run: Not a directory; move "),
        (
            "train --task probe-both --out thesis",
            "thesis is not a run directory (it contains main.tex); choose another --out",
        ),
        ("train --task probe-both --steps 999999999", "fac-small on probe-both to frame 999,999,999 is estimated"),
        ("train --task probe-both --steps 999999999 --json", "fac-small on probe-both to frame 999,999,999"),
        ("train --task probe-both --steps 999999999 --quiet", "fac-small on probe-both to frame 999,999,999"),
        ("resume begun --steps 999999999 --quiet", "fac-small on probe-both to frame 999,999,999 is"),
        ("evaluate begun", "begun has no checkpoint yet; continue it with fcritic resume"),
        ("evaluate beguun", "beguun does not exist; did you mean begun?"),
        ("evaluate thesis", "thesis is not a run (it has no config.json); name the directory of one"),
        ("resume file", "file is not a run (it has no config.json); name the directory of one"),
        ("evaluate .", ". is not a run (it has no config.json); name one of the runs in it, such as begun"),
        ("plot begun", "begun has no metrics yet; train it first"),
        (f"evaluate {'a' * 3000}", "cannot use aaa"),
    ],
)
def test_a_mistake_is_one_line_that_says_what_to_change(capsys, line, message):
    assert complaint(capsys, line.split()).startswith(message)


def test_odd_signs_stay_on_one_line(capsys):
    assert complaint(capsys, ["train", "--task", "two\nlines"]).startswith("unknown task 'two lines'")
    assert complaint(capsys, ["train", "--task", "[red]x[/red]"]).startswith("unknown task '[red]x[/red]'")
    assert "is not valid UTF-8" in complaint(capsys, ["evaluate", "\udcff"])
    assert complaint(capsys, ["train", "--steps", "-"]).startswith("--steps must be a whole number, not '-'")


def write_run(folder, rows):
    """A run made by hand."""
    folder.mkdir()
    (folder / "config.json").write_text('{"recipe": "fac", "task": "probe-both"}')
    (folder / "metrics.jsonl").write_text(rows)
    return str(folder)


def test_pictures_have_known_suffixes_and_rows_are_whole(tmp_path_factory, capsys):
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    row = '{"seed": 0, "env_steps": 9, "kind": "evaluation", "mean_actor": %s, "best_actor": 2}\n'
    good = write_run(elsewhere / "good", row % 1)
    message = "give --out a name that ends in .png, .svg, .pdf"
    for name in ("curve.bmp", "curve", "curve.png.gz"):
        assert complaint(capsys, ["plot", good, "--out", name]) == f"cannot write a picture to {name}; {message}"
    blocked = complaint(capsys, ["plot", good, "--out", "file/x.png"])
    assert blocked.startswith("cannot write the picture to file/x.png: ")
    for index, damaged in enumerate(("{}\n", row % '"x"', row % "[1]", row.replace('"seed": 0, ', "") % 1)):
        bad = write_run(elsewhere / f"bad{index}", row % 1 + damaged)
        assert complaint(capsys, ["plot", bad]).endswith("metrics.jsonl line 2 was edited; repair or remove it")
    assert "no evaluation yet" in complaint(capsys, ["plot", write_run(elsewhere / "young", "")])


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_a_real_process_says_the_same_in_any_terminal(place, encoding):
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PYTHONIOENCODING": encoding, "COLUMNS": "60"}
    command = [sys.executable, "-m", "fcritic", "evaluate", "--episodes", "many"]
    result = subprocess.run([*command, "begun"], env=environment, capture_output=True, text=True)
    assert result.returncode == 2 and result.stdout == ""
    assert result.stderr == "fcritic: --episodes must be a whole number, not 'many'; see fcritic evaluate --help\n"


def test_help_needs_no_patience(capsys):
    for args in ([], ["--help"], ["-h"], ["help"]):
        assert run(args) == 0
        out = capsys.readouterr().out
        assert all(name in out for name in COMMANDS)
    assert run(["--version"]) == 0 and capsys.readouterr().out[0].isdigit()
    for command in COMMANDS:
        try:
            code = run([command, "--help"])
        except SystemExit as left:  # the parser's way
            code = left.code
        assert code == 0 and f"fcritic {command}" in capsys.readouterr().out


def mangled(word, generator):
    """A word with a sign lost, doubled, swapped or added, or as it was."""
    place = generator.randrange(len(word) + 1)
    start, rest = word[:place], word[place:]
    changes = [rest[1:], rest[:1] + rest, rest[1:2] + rest[:1] + rest[2:], "é" + rest]
    return start + generator.choice([rest] * len(changes) + changes)


def random_line(generator):
    """Some command with some options and values; what could train has an option that cannot work."""
    options = sorted(option_names(TrainOptions(CONFIG)) | {"--episodes", "--help"})
    values = [
        "0",
        "-1",
        "3",
        "1e9",
        "nan",
        "x",
        "",
        "8 8",
        "begun",
        "file",
        "no/where",
        "probe-both",
        "[bold]",
        "=",
    ]
    command = generator.choice(sorted(COMMANDS))
    if generator.random() < 0.1:
        return [command, "--help"]
    words = [command, *generator.sample(values, generator.randrange(3))]
    for _ in range(generator.randrange(4)):
        words += [mangled(generator.choice(options), generator), *generator.sample(values, generator.randrange(3))]
    if command == "train":
        words += generator.choice([["--task", "nothing"], ["--steps", "0"], ["--task", "CartPole-v1"], ["--out"]])
    elif command == "resume":
        words += generator.choice([["--steps", "0"], ["--steps", "x"], ["--steps"]])
    return [mangled(command, generator), *words[1:]]


def test_random_command_lines_work_or_explain_themselves(capsys):
    generator = random.Random(0)
    codes = []
    for _ in range(40):
        line = random_line(generator)
        try:
            codes.append(run(line))
        except SystemExit as left:  # by --help
            codes.append(left.code)
        err = capsys.readouterr().err
        assert codes[-1] in (0, 2) and "Traceback" not in err, line
        assert codes[-1] == 0 or (err.startswith("fcritic: ") and err.count("\n") == 1), (line, err)
    assert codes.count(2) > 15 and 0 in codes
