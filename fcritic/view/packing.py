"""Arrays as text inside a page: little-endian numbers in base64, rounded where the eye cannot tell."""

import base64
from typing import Any

from jaxtyping import Float
import numpy as np

STEPS = 65535
"""Steps between the lowest and the highest number that 16 bits hold."""

Pose = Float[np.ndarray, "steps bodies 7"]
"""Position (metres) and unit quaternion (w, x, y, z) of each body at each step."""


def text_of(array: np.ndarray, kind: str = "<f4") -> str:
    """The numbers of an array in base64; `kind` is a NumPy type such as ``<f4`` or ``<u2``."""
    return base64.b64encode(np.ascontiguousarray(array, np.dtype(kind)).tobytes()).decode("ascii")


def in_box(points: Float[np.ndarray, "... axes"]) -> dict[str, Any]:
    """Points as 16-bit places in the smallest box that holds them: `low` and `size` of the box, and `data`.

    A number comes back as ``low + size * place / 65535``, at most ``size / 131070`` from where it was.
    """
    flat = points.reshape(-1, points.shape[-1])
    low = flat.min(axis=0) if len(flat) else np.zeros(points.shape[-1])
    size = flat.max(axis=0) - low if len(flat) else np.zeros(points.shape[-1])
    places = np.rint((points - low) / np.where(size > 0, size, 1.0) * STEPS)
    return {"low": low.tolist(), "size": size.tolist(), "data": text_of(places, "<u2")}


def pack_poses(poses: Pose) -> dict[str, Any]:
    """Poses in 14 bytes each: every body's position in the box that it visits, its quaternion within [-1, 1]."""
    steps, bodies, _ = poses.shape
    positions = in_box(poses[:, :, :3].reshape(steps, bodies * 3))
    rotations = np.rint((poses[:, :, 3:] + 1.0) / 2.0 * STEPS)
    return {
        "low": positions["low"],
        "size": positions["size"],
        "positions": positions["data"],
        "rotations": text_of(rotations, "<u2"),
    }


def position_error(packed: dict[str, Any]) -> float:
    """The most that a packed coordinate can be off, in metres."""
    return max(packed["size"], default=0.0) / STEPS / 2


ROTATION_ERROR = 2 * 2 / STEPS
"""The most that a packed rotation can be off, in radians: four components, each by half a step of 2 / 65535, move a
unit quaternion by at most 2 / 65535, and the angle is twice that (to first order)."""
