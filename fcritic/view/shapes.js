// Surfaces of every shape that MuJoCo has, in the frame of the shape: corners [x, y, z, normal x, y, z], and
// triangles as numbers of corners, counterclockwise as seen from outside.

// Corners around a round shape, and rings from pole to pole.
const detail = { round: 20, rings: 10 };

// A grid of corners, with two triangles for each of its cells, or fewer where corners lie on each other, as at a pole.
function grid(rows, columns, corner) {
  const corners = [], triangles = [], wide = columns + 1;
  const apart = (a, b) => Math.hypot(...minus(corners[a], corners[b])) > 1e-9;
  for (let i = 0; i <= rows; i++) for (let j = 0; j <= columns; j++) corners.push(corner(i, j));
  for (let i = 0; i < rows; i++)
    for (let j = 0; j < columns; j++) {
      const a = i * wide + j, b = a + wide;
      for (const [p, q, r] of [[a, b, b + 1], [a, b + 1, a + 1]])
        if (apart(p, q) && apart(q, r) && apart(r, p)) triangles.push(p, q, r);
    }
  return { corners, triangles };
}

function joined(...parts) {
  const corners = [], triangles = [];
  for (const part of parts) {
    for (const number of part.triangles) triangles.push(number + corners.length);
    for (const corner of part.corners) corners.push(corner);
  }
  return { corners, triangles };
}

// A ball with three half axes; its halves are `stretch` away from the middle, which makes a capsule.
function ball([a, b, c], stretch = 0) {
  const { round, rings } = detail;
  return grid(rings + 1, round, (ring, turn) => {
    const upper = ring <= rings / 2, down = (Math.PI * (upper ? ring : ring - 1)) / rings;
    const around = (2 * Math.PI * turn) / round, wide = Math.sin(down);
    const p = [wide * Math.cos(around), wide * Math.sin(around), Math.cos(down)];
    const normal = unit([p[0] / a, p[1] / b, p[2] / c]);
    return [p[0] * a, p[1] * b, p[2] * c + (upper ? stretch : -stretch), ...normal];
  });
}

function cylinder(radius, half) {
  const { round } = detail, rim = (turn) => [Math.cos((2 * Math.PI * turn) / round), Math.sin((2 * Math.PI * turn) / round)];
  const coat = grid(1, round, (row, turn) => {
    const [x, y] = rim(turn);
    return [radius * x, radius * y, row ? -half : half, x, y, 0];
  });
  const caps = [1, -1].map((side) => grid(1, round, (row, turn) => {
    const [x, y] = row ? rim(side * turn) : [0, 0];
    return [radius * x, radius * y, side * half, 0, 0, side];
  }));
  return joined(coat, ...caps);
}

function box(half) {
  const sides = [0, 1, 2].flatMap((axis) => [1, -1].map((side) => grid(1, 1, (i, j) => {
    const place = [0, 0, 0], normal = [0, 0, 0], [u, v] = [(axis + 1) % 3, (axis + 2) % 3];
    normal[axis] = side;
    place[axis] = side * half[axis]; place[u] = (2 * i - 1) * half[u]; place[v] = side * (2 * j - 1) * half[v];
    return [...place, ...normal];
  })));
  return joined(...sides);
}

// A mesh, smooth where neighbouring faces differ by less than some 40 degrees and sharp elsewhere.
function meshOf(packed) {
  const p = unbox(packed.vertices.low, packed.vertices.size, packed.vertices.data);
  const faces = packed.wide ? longsOf(packed.faces) : shortsOf(packed.faces);
  const at = (index) => [p[3 * index], p[3 * index + 1], p[3 * index + 2]];
  const normals = [], around = new Map();
  for (let f = 0; f < faces.length; f += 3) {
    const [a, b, c] = [at(faces[f]), at(faces[f + 1]), at(faces[f + 2])];
    normals.push(cross(minus(b, a), minus(c, a)));
    for (let k = 0; k < 3; k++) {
      const list = around.get(faces[f + k]);
      if (list) list.push(f / 3); else around.set(faces[f + k], [f / 3]);
    }
  }
  const directions = normals.map(unit), corners = [], triangles = [], known = new Map();
  for (let f = 0; f < faces.length; f++) {
    const face = Math.floor(f / 3), sum = [0, 0, 0];
    for (const other of around.get(faces[f]))
      if (dot(directions[face], directions[other]) > 0.77) for (let k = 0; k < 3; k++) sum[k] += normals[other][k];
    const normal = unit(sum), key = `${faces[f]} ${normal.map((each) => Math.round(each * 50))}`;
    if (!known.has(key)) { known.set(key, corners.length); corners.push([...at(faces[f]), ...normal]); }
    triangles.push(known.get(key));
  }
  return { corners, triangles };
}

function surfaceOf(shape, meshes) {
  const [a, b] = shape.size;
  switch (shape.kind) {
    case "sphere": return ball([a, a, a]);
    case "capsule": return ball([a, a, a], b);
    case "ellipsoid": return ball(shape.size);
    case "cylinder": return cylinder(a, b);
    case "box": return box(shape.size);
    default: return meshes[shape.mesh];
  }
}

// A shape in the frame of its body, with its colour: 10 numbers for each corner.
function painted(shape, meshes) {
  const { corners, triangles } = surfaceOf(shape, meshes), place = poseMatrix(...shape.rotation, ...shape.position);
  const moved = corners.map(([x, y, z, u, v, w]) =>
    [...transformPoint(place, [x, y, z]), ...transformPoint(place, [u, v, w], 0), ...shape.colour]);
  return { corners: moved, triangles };
}
