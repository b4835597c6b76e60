"""Files are plain, as large as expected, and fit into memory; a place is never left through a link."""

import contextlib
import os
import subprocess
import sys

import pytest

from fcritic import disk
from fcritic.disk import NotPlain, Place, read_json, require_memory
from fcritic.errors import UsageError


def test_more_than_there_is_is_refused_at_once():
    with pytest.raises(UsageError, match=r"a replay needs 1,048,576.0 GiB of memory"):
        require_memory(2**50, "a replay")
    require_memory(2**20, "a replay")


def test_only_plain_files_are_opened(tmp_path):
    (tmp_path / "file").write_text("{}")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    os.mkfifo(tmp_path / "pipe")
    assert read_json(tmp_path / "file") == {}
    for name, says in {"link": "is a link", "pipe": "not a plain file", ".": "not a plain file"}.items():
        with pytest.raises(NotPlain, match=says):
            read_json(tmp_path / name)
    (tmp_path / "file").write_bytes(b" " * (disk.JSON_LIMIT + 1))
    with pytest.raises(NotPlain, match="more than the 4,194,304 expected"):
        read_json(tmp_path / "file")
    (tmp_path / "file").write_bytes(b"[" * 200_000)
    with pytest.raises(ValueError, match="nested"):
        read_json(tmp_path / "file")


def test_a_place_is_below_its_root_alone(tmp_path):
    (tmp_path / "run").mkdir()
    for name in ("..", ".", "", "a/b", "/etc", "a\0"):
        with pytest.raises(ValueError, match="is not the name of a file"):
            Place(tmp_path / "run") / name
    assert (Place(tmp_path / "run") / "a" / "b").path == tmp_path / "run" / "a" / "b"


def test_every_way_of_changing_a_file_stops_at_a_link(tmp_path):
    """On the way to it, or in its own place; links above the root are the user's own."""
    mine, run = tmp_path / "mine", tmp_path / "run"
    mine.mkdir()
    run.mkdir()
    (mine / "file").write_text("mine")
    (run / "folder").symlink_to(mine)
    (run / "file").symlink_to(mine / "file")
    (tmp_path / "way").symlink_to(run)
    way, file = Place(tmp_path / "way") / "folder" / "file", Place(tmp_path / "way") / "file"
    for place in (way, file):
        acts = [place.reading, place.appending, place.require_plain, lambda place=place: place.replace(b"")]
        for act in acts:
            with pytest.raises(NotPlain, match="is a link"):
                act()
    for act in (way.status, way.remove, lambda: way.write_new(b""), lambda: way.rename("x"), (way / "x").make):
        with pytest.raises(NotPlain, match=r"is a link|is in the way"):
            act()
    with pytest.raises(FileExistsError):
        file.write_new(b"")
    with pytest.raises(NotPlain, match="is a link"):
        way.parent.entries()
    way.parent.remove()
    file.remove()
    assert not list(run.iterdir()) and (mine / "file").read_text() == "mine"
    (Place(tmp_path / "way") / "new").replace(b"new")
    assert (run / "new").read_bytes() == b"new" and list(run.iterdir()) == [run / "new"]


def test_folders_in_each_other_without_end_are_one_line(tmp_path):
    with contextlib.chdir(tmp_path):
        for name in ("deep", *["a"] * 3000):
            os.mkdir(name)
            os.chdir(name)
    try:
        (Place(tmp_path) / "deep").remove()
    except NotPlain as error:
        assert sys.version_info < (3, 13)  # from there on Python goes as deep as folders do
        assert "deep has more folders in each other than can be removed; remove it" in str(error)
        subprocess.run(["rm", "-r", tmp_path / "deep"], check=True)  # pytest could not either
    assert not (tmp_path / "deep").exists()


def test_a_folder_of_too_many_names_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(disk, "MOST_NAMES", 2)
    for name in "ab":
        (tmp_path / name).touch()
    assert list(Place(tmp_path).entries()) == ["a", "b"]
    (tmp_path / "c").touch()
    with pytest.raises(NotPlain, match="more than 2 files"):
        Place(tmp_path).entries()


def test_a_large_file_of_holes_is_not_read(tmp_path):
    with (tmp_path / "holes").open("wb") as file:
        file.write(b"x")
        file.truncate(2**30 + 1)
    with pytest.raises(NotPlain, match="has 1,073,741,825 bytes, nearly all of them holes"):
        Place.of(tmp_path / "holes").reading()
    os.truncate(tmp_path / "holes", 2**30)
    Place.of(tmp_path / "holes").reading().close()
