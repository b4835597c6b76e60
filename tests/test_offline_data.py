"""Logged data from files: every layout gives the same transitions, and what is wrong with a file is one line."""

import os
from pathlib import Path
import warnings

from logged_data import LENGTHS, episodes, save, without
import numpy as np
import pytest

from fcritic.errors import UsageError
from fcritic.offline import storage
from fcritic.offline.dataset import FIELDS, Dataset
from fcritic.offline.folder import write
from fcritic.offline.reading import read_logs

KINDS = ("npz", "hdf5")


def assert_same(one: Dataset, other: Dataset) -> None:
    for name in FIELDS:
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)


@pytest.mark.parametrize("kind", KINDS)
def test_terminations_stop_the_future_and_time_limits_do_not(tmp_path, kind):
    found = read_logs(save(tmp_path / f"data.{kind}", episodes()))
    assert found.discount.tolist() == [1, 1, 0, 1, 1, 1, 1, 1, 1]
    assert found.ended.tolist() == [0, 0, 1, 0, 0, 0, 1, 0, 0]
    assert found.last.tolist() == [0, 0, 1, 0, 0, 0, 1, 0, 1]
    assert found.episodes == [(0, 3), (3, 7), (7, 9)]
    assert found.starts.tolist() == [[0, 0], [1, 0], [2, 0]]
    assert found.next_obs[6].tolist() == [1, 4]
    numbers, values = found.returns(0.5)
    assert numbers.tolist() == [0, 1]  # the third was cut off by the file
    np.testing.assert_allclose(values, [0 + 1 / 2 + 2 / 4, 3 + 4 / 2 + 5 / 4 + 6 / 8])


@pytest.mark.parametrize("kind", KINDS)
def test_without_next_observations_what_they_would_have_said_is_left_out(tmp_path, kind):
    """The last transition of an episode that did not terminate has no known next observation."""
    found = read_logs(save(tmp_path / f"data.{kind}", without(episodes(), "next_observations")))
    assert found.reward.tolist() == [0, 1, 2, 3, 4, 5, 7]
    assert found.discount.tolist() == [1, 1, 0, 1, 1, 1, 1]
    assert found.next_obs[[0, 1, 3, 4, 5, 6]].tolist() == [[0, 1], [0, 2], [1, 1], [1, 2], [1, 3], [2, 1]]
    assert found.episodes == [(0, 3), (3, 6), (6, 7)]
    assert found.ended.tolist() == [0, 0, 1, 0, 0, 1, 0]
    assert found.first.tolist() == [1, 0, 0, 1, 0, 0, 1]


def test_without_timeouts_a_jump_of_the_observation_ends_an_episode(tmp_path):
    fields = episodes()
    assert_same(
        read_logs(save(tmp_path / "all.npz", fields)),
        read_logs(save(tmp_path / "few.npz", without(fields, "timeouts"))),
    )
    bare = save(tmp_path / "bare.npz", without(fields, "timeouts", "next_observations"))
    with pytest.warns(UserWarning, match="neither timeouts nor next_observations"):
        read_logs(bare)


def test_an_episode_of_one_transition_without_a_next_one_disappears(tmp_path):
    fields = without(episodes(), "next_observations")
    fields["timeouts"] = fields["timeouts"] | (np.arange(9) == 3)
    found = read_logs(save(tmp_path / "data.npz", fields))
    assert found.reward.tolist() == [0, 1, 2, 4, 5, 7]
    assert found.episodes == [(0, 3), (3, 5), (5, 6)]


def test_a_folder_keeps_everything_and_is_not_copied(tmp_path):
    original = read_logs(save(tmp_path / "data.npz", episodes(2.0)), bounds=(-2, 2))
    again = read_logs(write(tmp_path / "folder", original))
    assert_same(original, again)
    assert isinstance(again.obs, np.memmap)
    np.testing.assert_array_equal(again.units.actions.scale(again.act), episodes(2.0)["actions"])
    with pytest.raises(UsageError, match="exists already"):
        write(tmp_path / "folder", original)


def test_sources_follow_each_other(tmp_path):
    npz, hdf5 = (save(tmp_path / f"data.{kind}", episodes()) for kind in KINDS)
    folder = write(tmp_path / "folder", read_logs(npz))
    found = read_logs([npz, hdf5, folder])
    assert found.sources == (npz, hdf5, str(folder))
    assert len(found) == 27
    assert found.episodes[3:6] == [(9, 12), (12, 16), (16, 18)]
    np.testing.assert_array_equal(found.reward, np.tile(np.arange(9), 3))


def test_actions_are_scaled_by_their_bounds_and_never_by_a_guess(tmp_path):
    path = save(tmp_path / "data.npz", episodes(2.0))
    with pytest.raises(UsageError, match=r"actions reach 2, outside of \[-1, 1\]; give --task, or their bounds"):
        read_logs(path)
    for found in (read_logs(path, bounds=(-2, 2)), read_logs(path, bounds=([-2.0], [2.0]))):
        np.testing.assert_allclose(found.act[:, 0], np.linspace(-1, 1, 9), atol=1e-6)
    assert read_logs(path, bounds=(-4, 2)).act[0, 0] == pytest.approx(-1 / 3)
    with pytest.raises(UsageError, match="must be finite and rise"):
        read_logs(path, bounds=(2, -2))
    with pytest.raises(UsageError, match=r"or have shape \(1,\)"):
        read_logs(path, bounds=([0, 0], [1, 1]))


def test_a_task_gives_bounds_and_must_fit(tmp_path):
    fields = episodes(2.0)
    for name in ("observations", "next_observations"):
        fields[name] = np.column_stack([fields[name], fields[name][:, :1]])
    found = read_logs(save(tmp_path / "data.npz", fields), task="Pendulum-v1")
    assert found.task == "Pendulum-v1"
    np.testing.assert_allclose(found.act[:, 0], np.linspace(-1, 1, 9), atol=1e-6)
    with pytest.raises(UsageError, match="Pendulum-v1 has 3 and"):
        read_logs(save(tmp_path / "other.npz", episodes()), task="Pendulum-v1")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("field", "change", "message"),
    [
        ("observations", lambda array: array[:-1], r"actions has shape \(9, 1\), but there are 8 observations"),
        ("observations", lambda array: array[:0], "has no transitions"),
        ("observations", lambda array: np.where(array == 2, np.nan, array), "observations holds NaN"),
        ("rewards", lambda array: array[:, None] + np.array([0.0, 0.0]), r"rewards has shape \(9, 2\), not \(9,\)"),
        ("rewards", lambda array: array + np.inf, "rewards holds inf"),
        ("actions", lambda array: np.ones((9, 1), np.int64), "discrete actions"),
        ("actions", lambda array: np.full((9, 1), np.nan), "actions holds NaN"),
        ("actions", lambda array: np.ones((9, 0)), "are empty"),
        ("terminals", lambda array: array * 0.5, "terminals holds 0.5"),
        ("terminals", None, "has no field terminals"),
        ("timeouts", lambda array: array[:4], r"timeouts has shape \(4,\)"),
        ("next_observations", lambda array: array[:, :1], r"next_observations has rows of \(1,\)"),
        ("next_observations", lambda array: array.astype(float) + 1e300, r"next_observations holds 1e\+300"),
    ],
)
def test_a_wrong_field_is_named(tmp_path, kind, field, change, message):
    fields = episodes()
    if change is None:
        del fields[field]
    else:
        with np.errstate(over="ignore"):
            fields[field] = change(fields[field])
    path = save(tmp_path / f"data.{kind}", fields)
    with pytest.raises(UsageError, match=message) as told:
        read_logs(path)
    assert path in str(told.value)
    assert "\n" not in str(told.value)


@pytest.mark.parametrize("kind", KINDS)
def test_every_truncated_or_altered_file_is_one_line_or_sound(tmp_path, kind):
    whole = Path(save(tmp_path / f"data.{kind}", episodes())).read_bytes()
    rng = np.random.default_rng(0)
    refused = 0
    for number in range(60):
        content = bytearray(whole[: rng.integers(1, len(whole))] if number % 2 else whole)
        if not number % 2:
            for place in rng.integers(0, len(whole), 8):
                content[place] = rng.integers(256)
        path = tmp_path / f"{number}.{kind}"
        path.write_bytes(content)
        try:
            found = read_logs(path)
            assert np.isfinite(found.obs).all()
        except UsageError as error:
            refused += 1
            assert "\n" not in str(error)
    assert refused > 20
    (tmp_path / "empty").write_bytes(b"")
    with pytest.raises(UsageError, match="is empty"):
        read_logs(tmp_path / "empty")
    (tmp_path / "text.npz").write_bytes(b"observations")
    with pytest.raises(UsageError, match="is not an NPZ or HDF5 file"):
        read_logs(tmp_path / "text.npz")


def test_pickles_are_never_read(tmp_path):
    fields = episodes() | {"rewards": np.array([{"a": 1}] * 9, object)}
    path = save(tmp_path / "data.npz", fields)
    with pytest.raises(UsageError, match="rewards cannot be read: it holds Python objects"):
        read_logs(path)


def test_absurd_sizes_are_refused_before_they_are_asked_for(tmp_path):
    import h5py

    with h5py.File(tmp_path / "huge.hdf5", "w") as file:
        for name, shape in {"observations": (10**12, 100), "actions": (10**12, 2)}.items():
            file.create_dataset(name, shape, np.float32, chunks=(1, shape[1]))
        for name in ("rewards", "terminals"):
            file.create_dataset(name, (10**12,), np.float32, chunks=(1,))
    with pytest.raises(UsageError, match=r"its [\d,]+ bytes would unpack to 416,000,000,000,000"):
        read_logs(tmp_path / "huge.hdf5")


def test_links_to_other_files_are_not_followed(tmp_path):
    import h5py

    other = save(tmp_path / "other.hdf5", episodes())
    with h5py.File(save(tmp_path / "data.hdf5", without(episodes(), "rewards")), "a") as file:
        file["rewards"] = h5py.ExternalLink(other, "rewards")
    with pytest.raises(UsageError, match="rewards is a link"):
        read_logs(tmp_path / "data.hdf5")
    os.symlink(other, tmp_path / "link.hdf5")
    with pytest.raises(UsageError, match="is a link"):
        read_logs(tmp_path / "link.hdf5")


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("obs.npy", lambda content: content[:-1], r"obs.npy cannot be read: it has .* truncated"),
        ("obs.npy", lambda content: content + b"0", "overlong"),
        (
            "act.npy",
            lambda content: content[:-4] + np.float32(3).tobytes(),
            r"act.npy holds numbers outside of \[-1, 1\]",
        ),
        ("discount.npy", lambda content: content[:-4] + np.float32(np.nan).tobytes(), "discount.npy holds NaN"),
        ("first.npy", lambda content: content[:-1] + b"\7", "first.npy holds numbers that are neither 0 nor 1"),
        ("dataset.json", lambda content: content.replace(b'"obs_dim": 2', b'"obs_dim": 3'), "do not fit together"),
        (
            "dataset.json",
            lambda content: content.replace(b"action_low", b"action_lov"),
            "does not say its action_low",
        ),
        ("dataset.json", lambda content: content[:9], "dataset.json cannot be read"),
        ("dataset.json", lambda content: b"[]", "does not say its task"),
    ],
)
def test_a_damaged_folder_is_one_line(tmp_path, name, change, message):
    folder = write(tmp_path / "folder", read_logs(save(tmp_path / "data.npz", episodes())))
    (folder / name).write_bytes(change((folder / name).read_bytes()))
    with pytest.raises(UsageError, match=message):
        read_logs(folder)


def test_sources_that_do_not_fit_are_named(tmp_path):
    one = save(tmp_path / "one.npz", episodes())
    fields = episodes()
    fields["actions"] = np.zeros((9, 2))
    with pytest.raises(UsageError, match=r"one.npz has actions of shape \(1,\), .*two.npz \(2,\)"):
        read_logs([one, save(tmp_path / "two.npz", fields)])
    wide = write(tmp_path / "wide", read_logs(save(tmp_path / "wide.npz", episodes(2.0)), bounds=(-2, 2)))
    narrow = write(tmp_path / "narrow", read_logs(one))
    with pytest.raises(UsageError, match="narrow has actions from -1 to 1, not from -2 to 2"):
        read_logs([wide, narrow])
    with pytest.raises(UsageError, match="is not a run, a folder written by fcritic log or a dataset of Minari"):
        read_logs(tmp_path)
    with pytest.raises(UsageError, match="no data are named"):
        read_logs([])


def test_large_arrays_lie_in_files_that_have_no_name(tmp_path, monkeypatch):
    small = read_logs(save(tmp_path / "data.npz", episodes()))
    monkeypatch.setattr(storage, "IN_MEMORY", 0)
    monkeypatch.setattr(storage, "PIECE", 16)  # so that every field is read in several pieces
    for kind in KINDS:
        large = read_logs(save(tmp_path / f"again.{kind}", episodes()))
        assert isinstance(large.obs, np.memmap)
        assert_same(small, large)
    shifted = [
        read_logs(save(tmp_path / f"bare.{kind}", without(episodes(), "next_observations"))) for kind in KINDS
    ]
    assert_same(*shifted)
    assert shifted[0].next_obs[[0, 1, 3, 4, 5, 6]].tolist() == [[0, 1], [0, 2], [1, 1], [1, 2], [1, 3], [2, 1]]


def test_thinning_gives_every_row_the_same_chance(tmp_path):
    found = read_logs(save(tmp_path / "data.npz", episodes()))
    rng = np.random.default_rng(0)
    counts = np.zeros(9)
    for _ in range(2000):
        part = found.thin(3, rng)
        rows = part.reward.astype(int)
        assert len(set(rows)) == 3
        np.testing.assert_array_equal(part.obs, found.obs[rows])
        np.testing.assert_array_equal(part.next_obs, found.next_obs[rows])
        counts[rows] += 1
    assert abs(counts / 2000 - 1 / 3).max() < 0.05
    assert len(found.thin(100, rng).reward) == 9


def test_minari_by_id_and_by_folder(tmp_path, monkeypatch):
    minari = pytest.importorskip("minari")
    from gymnasium import spaces
    from minari.data_collector import EpisodeBuffer

    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    fields = episodes(2.0)
    buffers, stop = [], 0
    for number, length in enumerate(LENGTHS):
        rows, stop = slice(stop, stop + length), stop + length
        seen = np.vstack([fields["observations"][rows], fields["next_observations"][rows][-1:]])
        parts = {"step": seen[:, 1:], "number": seen[:, :1]}  # the keys are sorted when they are flattened
        flags = {"terminations": fields["terminals"][rows], "truncations": fields["timeouts"][rows]}
        if number == 2:
            flags["truncations"] = np.array([False, True])
        flags |= {"actions": fields["actions"][rows], "rewards": fields["rewards"][rows].tolist()}
        buffers.append(EpisodeBuffer(id=number, observations=parts, **flags))
    box = lambda bound: spaces.Box(-bound, bound, (1,), np.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what a dataset should say of itself
        minari.create_dataset_from_buffers(
            "toy/count-v0", buffers, action_space=box(2), observation_space=spaces.Dict(step=box(9), number=box(9))
        )
    by_id, by_folder = read_logs("toy/count-v0"), read_logs(tmp_path / "toy/count-v0")
    assert_same(by_id, by_folder)
    fields["timeouts"][-1] = True
    assert_same(by_id, read_logs(save(tmp_path / "data.npz", fields), bounds=(-2, 2)))
    with monkeypatch.context() as elsewhere:
        elsewhere.setenv("MINARI_DATASETS_PATH", str(tmp_path / "nothing"))
        with pytest.raises(UsageError, match="Minari has no dataset of that id"):
            read_logs("toy/other-v0")
    assert not (tmp_path / "nothing").exists()  # Minari itself would make it
    with pytest.raises(UsageError, match="is a part of a Minari dataset; name its folder"):
        read_logs(tmp_path / "toy/count-v0/data/main_data.hdf5")
    metadata = tmp_path / "toy/count-v0/data/metadata.json"
    metadata.write_text(metadata.read_text().replace('"observation_space"', '"other"'))
    with pytest.raises(UsageError, match="has no observation_space"):  # Minari would build what env_spec names
        read_logs("toy/count-v0")


@pytest.mark.parametrize("missing", ["h5py", "onnxruntime"])
def test_what_is_not_installed_is_named_with_its_extra(tmp_path, monkeypatch, missing):
    import sys

    from fcritic.offline.gathering import read_policies

    found = read_logs(save(tmp_path / "data.npz", episodes()))
    hdf5 = save(tmp_path / "data.hdf5", episodes())
    (tmp_path / "policy.onnx").write_bytes(b"")
    monkeypatch.setitem(sys.modules, missing, None)
    if missing == "onnxruntime":
        with pytest.raises(UsageError, match=r"pip install 'fcritic\[onnx\]'"):
            read_policies(tmp_path / "policy.onnx", found)
    else:
        with pytest.raises(UsageError, match=r"pip install 'fcritic\[data\]'"):
            read_logs(hdf5)
