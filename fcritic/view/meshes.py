"""Triangles of a MuJoCo model: meshes and height fields, made smaller where they would fill the page."""

from typing import TYPE_CHECKING, Any

from jaxtyping import Float, Int
import numpy as np

from fcritic.view.scene import in_box, text_of

if TYPE_CHECKING:
    import mujoco

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
