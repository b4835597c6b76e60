"""Small logged data with a known content, in every form in which it can be read."""

from pathlib import Path

import numpy as np

LENGTHS = (3, 4, 2)
"""Actions of the episodes: the first terminates, a time limit ends the second, the file cuts the third off."""


def episodes(bound: float = 1.0) -> dict[str, np.ndarray]:
    """Fields in the layout of D4RL. An observation is (episode, step), the reward the number of the row."""
    count = sum(LENGTHS)
    obs = [(number, step) for number, length in enumerate(LENGTHS) for step in range(length)]
    following = [(number, step + 1) for number, step in obs]
    ends = np.cumsum(LENGTHS) - 1
    rows = np.arange(count)
    return {
        "observations": np.array(obs, np.float32),
        "actions": np.linspace(-bound, bound, count, dtype=np.float32)[:, None],
        "rewards": rows.astype(np.float32),
        "terminals": rows == ends[0],
        "timeouts": rows == ends[1],
        "next_observations": np.array(following, np.float32),
    }


def without(fields: dict[str, np.ndarray], *names: str) -> dict[str, np.ndarray]:
    """The same without some of the fields."""
    return {name: array for name, array in fields.items() if name not in names}


def save(path: Path, fields: dict[str, np.ndarray]) -> str:
    """Writes fields as NPZ or HDF5, by the ending of the path."""
    if path.suffix == ".npz":
        np.savez_compressed(path, **fields)
    else:
        import h5py

        with h5py.File(path, "w") as file:
            for name, array in fields.items():
                file.create_dataset(name, data=array)
    return str(path)
