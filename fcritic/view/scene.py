"""What a MuJoCo model looks like, in plain numbers: shapes, colours, triangles, the body that each is fixed to.

Arrays stand in the page as text: little-endian numbers in base64, rounded below what the eye can see.
"""

import base64
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from jaxtyping import Float, Int
import numpy as np

if TYPE_CHECKING:
    import mujoco


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


Vertices = Float[np.ndarray, "vertices 3"]
Faces = Int[np.ndarray, "faces 3"]

MOST_FACES = 60_000
"""Triangles of all meshes of a page together: about 0.9 MB of text."""

FINEST, COARSEST = 64, 4
"""Cells along the longest side of a mesh that is made smaller: what is tried first and last."""


def mesh_of(model: "mujoco.MjModel", index: int) -> tuple[Vertices, Faces]:
    """A mesh in the frame of the geoms that show it."""
    vertex, face = model.mesh_vertadr[index], model.mesh_faceadr[index]
    vertices = model.mesh_vert[vertex : vertex + model.mesh_vertnum[index]]
    return np.array(vertices, float), np.array(model.mesh_face[face : face + model.mesh_facenum[index]], int)


def height_field_of(model: "mujoco.MjModel", index: int) -> tuple[Vertices, Faces]:
    """The upper surface of a height field, two triangles for each cell."""
    rows, columns = int(model.hfield_nrow[index]), int(model.hfield_ncol[index])
    begin = model.hfield_adr[index]
    heights = model.hfield_data[begin : begin + rows * columns].reshape(rows, columns)
    half_x, half_y, top, _ = model.hfield_size[index]
    y, x = np.meshgrid(np.linspace(-half_y, half_y, rows), np.linspace(-half_x, half_x, columns), indexing="ij")
    vertices = np.stack([x, y, heights * top], axis=-1).reshape(-1, 3)
    corner = (np.arange(rows - 1)[:, None] * columns + np.arange(columns - 1)).ravel()
    right, above = corner + 1, corner + columns
    faces = np.concatenate([np.stack([corner, right, above], 1), np.stack([right, above + 1, above], 1)])
    return vertices, faces


def thin(vertices: Vertices, faces: Faces, cells: int) -> tuple[Vertices, Faces]:
    """The same surface with the vertices of each cell of a grid drawn together into their mean."""
    low = vertices.min(axis=0)
    side = (vertices.max(axis=0) - low).max() / cells
    places = np.floor((vertices - low) / (side if side > 0 else 1.0)).astype(int)
    _, cell_of, count = np.unique(places, axis=0, return_inverse=True, return_counts=True)
    cell_of = cell_of.reshape(-1)
    sums = np.zeros((len(count), 3))
    np.add.at(sums, cell_of, vertices)
    corners = cell_of[faces]
    a, b, c = corners.T
    kept = corners[(a != b) & (b != c) & (c != a)]
    _, first = np.unique(np.sort(kept, axis=1), axis=0, return_index=True)
    return sums / count[:, None], kept[np.sort(first)]


def pack_all(surfaces: list[tuple[Vertices, Faces]]) -> tuple[list[dict[str, Any]], bool]:
    """All surfaces as text, and whether they had to be made coarser to keep the page small."""
    cells, coarser, chosen = FINEST, False, surfaces
    while sum(len(faces) for _, faces in chosen) > MOST_FACES and cells >= COARSEST:
        chosen, coarser = [thin(vertices, faces, cells) for vertices, faces in surfaces], True
        cells //= 2
    return [_pack(vertices, faces) for vertices, faces in chosen], coarser


def _pack(vertices: Vertices, faces: Faces) -> dict[str, Any]:
    kind = "<u2" if len(vertices) <= 2**16 else "<u4"
    return {"vertices": in_box(vertices), "wide": kind == "<u4", "faces": text_of(faces, kind)}


KINDS = ("plane", "hfield", "sphere", "capsule", "ellipsoid", "cylinder", "box", "mesh", "mesh")
"""The shapes in MuJoCo's order; the last, a signed distance field, has a mesh too."""

GROUPS = 3
"""MuJoCo shows groups 0 to 2 of geoms and sites; the others are for collisions (3, by custom) and sensors."""

SMALL, ENOUGH = 0.03, 0.25
"""A body below that share of its world is shown with this share of the world around it."""

NEAR = 5
"""Other things that move belong to the picture if they begin so many times the tracked body's reach away."""

UNSET = (0.5, 0.5, 0.5, 1.0)
"""The colour of what has none; its material's colour then holds."""


def scene_of(model: "mujoco.MjModel") -> dict[str, Any]:
    """All that is visible of a model; poses of bodies are not part of it."""
    surfaces: dict[tuple[str, int], int] = {}
    shapes = [_geom(model, index, surfaces) for index in range(model.ngeom) if _shown(model, "geom", index)]
    shapes += [_shape(model, "site", index) for index in range(model.nsite) if _shown(model, "site", index)]
    load: dict[str, Callable] = {"hfield": height_field_of, "mesh": mesh_of}
    packed, coarser = pack_all([load[kind](model, index) for kind, index in surfaces])
    return {"shapes": shapes, "meshes": packed, "coarser": coarser, "skinned": model.nskin > 0}


def tracked_body(model: "mujoco.MjModel", data: "mujoco.MjData") -> int:
    """The body that a camera should follow: of those that stand in the world and can move, the largest."""
    return max(_movable(model), key=lambda body: _reach(model, data, body, [body]), default=0)


def radius_of(model: "mujoco.MjModel", data: "mujoco.MjData", body: int) -> float:
    """How far a picture must reach around the tracked body to hold it, and what else moves near it."""
    own, centre = _reach(model, data, body, [body]), data.subtree_com[body]
    apart = lambda other: np.linalg.norm(data.subtree_com[other] - centre)
    reach = _reach(model, data, body, [each for each in _movable(model) if apart(each) < NEAR * own])
    world = float(model.stat.extent)
    return reach if reach > SMALL * world else ENOUGH * world


def _movable(model: "mujoco.MjModel") -> set[int]:
    """The bodies that stand in the world and move, or have parts that do."""
    return {int(model.body_rootid[body]) for body in range(model.nbody) if model.body_dofnum[body]}


def _reach(model: "mujoco.MjModel", data: "mujoco.MjData", centre: int, roots: list[int]) -> float:
    """How far the visible parts of some bodies and all that hangs on them are from one's centre of mass."""
    parts = [i for i in range(model.ngeom) if model.body_rootid[model.geom_bodyid[i]] in roots]
    parts = [i for i in parts if _shown(model, "geom", i) and KINDS[model.geom_type[i]] != "plane"]
    apart = np.linalg.norm(data.geom_xpos[parts] - data.subtree_com[centre], axis=1)
    return float(max(apart + model.geom_rbound[parts], default=0.0))


def _shown(model: "mujoco.MjModel", what: str, index: int) -> bool:
    group = getattr(model, f"{what}_group")[index]
    # A skin is not drawn here: what it would cover, the shapes for collisions, are.
    groups = GROUPS + 1 if model.nskin and what == "geom" else GROUPS
    return bool(group < groups and _colour(model, what, index)[3] > 0)


def _geom(model: "mujoco.MjModel", index: int, surfaces: dict[tuple[str, int], int]) -> dict[str, Any]:
    shape = _shape(model, "geom", index)
    if shape["kind"] in ("mesh", "hfield"):
        surface = (shape["kind"], int(model.geom_dataid[index]))
        shape |= {"kind": "mesh", "mesh": surfaces.setdefault(surface, len(surfaces))}
    if shape["kind"] == "plane":
        shape |= {"checker": _checker(model, index)}
    return shape


def _shape(model: "mujoco.MjModel", what: str, index: int) -> dict[str, Any]:
    field = lambda name: getattr(model, f"{what}_{name}")[index]
    return {
        "kind": KINDS[field("type")],
        "body": int(field("bodyid")),
        "size": field("size").tolist(),
        "position": field("pos").tolist(),
        "rotation": field("quat").tolist(),
        "colour": [round(float(part), 4) for part in _colour(model, what, index)],
    }


def _colour(model: "mujoco.MjModel", what: str, index: int) -> np.ndarray:
    """Its own colour, or where it has none its material's, times the mean of the material's texture."""
    own, material = (getattr(model, f"{what}_{name}")[index] for name in ("rgba", "matid"))
    if material < 0:
        return np.array(own, float)
    colour = np.array(own if tuple(own) != UNSET else model.mat_rgba[material], float)
    pixels = _texture(model, material)
    if pixels is not None:
        colour[:3] *= pixels.reshape(-1, pixels.shape[-1])[:, :3].mean(axis=0)
    return colour


def _texture(model: "mujoco.MjModel", material: int) -> np.ndarray | None:
    """The picture of a material as (rows, columns, channels) in [0, 1], or None where it has no colours."""
    import mujoco

    texture = model.mat_texid[material, mujoco.mjtTextureRole.mjTEXROLE_RGB]
    channels = model.tex_nchannel[texture] if texture >= 0 else 0
    if channels < 3:
        return None
    rows, columns, begin = model.tex_height[texture], model.tex_width[texture], model.tex_adr[texture]
    return model.tex_data[begin : begin + rows * columns * channels].reshape(rows, columns, channels) / 255.0


def _checker(model: "mujoco.MjModel", index: int) -> dict[str, Any]:
    """Two colours and the sides of a square: those of its texture if that is a checkerboard, else made up."""
    colour, material = _colour(model, "geom", index)[:3], model.geom_matid[index]
    pixels = _texture(model, material) if material >= 0 else None
    if pixels is None or pixels.shape[0] != pixels.shape[1]:
        return {"colours": [colour.tolist(), np.minimum(colour * 1.15, 1.0).tolist()], "side": [1.0, 1.0]}
    quarter = pixels.shape[0] // 4
    own = np.array(model.geom_rgba[index])
    tint = (own if tuple(own) != UNSET else model.mat_rgba[material])[:3]
    two = [(pixels[quarter, column, :3] * tint).tolist() for column in (quarter, 3 * quarter)]
    repeat, half = model.mat_texrepeat[material], model.geom_size[index, :2]
    uniform = model.mat_texuniform[material] or not half.all()
    side = (1.0 if uniform else half) / repeat
    return {"colours": two, "side": [float(each) for each in side]}
