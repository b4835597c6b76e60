"use strict";
// Numbers out of text, and the few matrices a camera needs. Matrices are column-major, as WebGL wants them.

function bytesOf(text) {
  const raw = atob(text), bytes = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i++) bytes[i] = raw.charCodeAt(i);
  return bytes;
}

const floatsOf = (text) => new Float32Array(bytesOf(text).buffer);
const shortsOf = (text) => new Uint16Array(bytesOf(text).buffer);
const longsOf = (text) => new Uint32Array(bytesOf(text).buffer);

// Places of 16 bits back into the box that they were measured in; `low` and `size` have one entry per axis.
function unbox(low, size, text) {
  const places = shortsOf(text), axes = low.length, found = new Float32Array(places.length);
  for (let i = 0; i < places.length; i++) found[i] = low[i % axes] + (size[i % axes] * places[i]) / 65535;
  return found;
}

// The poses of the bodies that move: positions (states, bodies, 3) and quaternions (states, bodies, 4).
function unpackPoses(packed) {
  const quaternions = shortsOf(packed.rotations), rotations = new Float32Array(quaternions.length);
  for (let i = 0; i < rotations.length; i++) rotations[i] = (quaternions[i] / 65535) * 2 - 1;
  return { positions: unbox(packed.low, packed.size, packed.positions), rotations, bodies: packed.low.length / 3 };
}

// The matrix that turns by a quaternion (w, x, y, z), which need not have length 1, and then moves.
function poseMatrix(w, x, y, z, px, py, pz, out = new Float32Array(16)) {
  const s = 2 / (w * w + x * x + y * y + z * z);
  out[0] = 1 - s * (y * y + z * z); out[1] = s * (x * y + w * z); out[2] = s * (x * z - w * y); out[3] = 0;
  out[4] = s * (x * y - w * z); out[5] = 1 - s * (x * x + z * z); out[6] = s * (y * z + w * x); out[7] = 0;
  out[8] = s * (x * z + w * y); out[9] = s * (y * z - w * x); out[10] = 1 - s * (x * x + y * y); out[11] = 0;
  out[12] = px; out[13] = py; out[14] = pz; out[15] = 1;
  return out;
}

// The matrix of a body between two states: `share` 0 is at `state`, 1 at the next one.
function bodyMatrix(track, body, state, share, out) {
  const { positions: p, rotations: q, bodies } = track;
  const next = share > 0 ? bodies : 0, a = state * bodies + body, b = a + next, rest = 1 - share;
  const at = (values, width, k) => values[a * width + k] * rest + values[b * width + k] * share;
  return poseMatrix(at(q, 4, 0), at(q, 4, 1), at(q, 4, 2), at(q, 4, 3), at(p, 3, 0), at(p, 3, 1), at(p, 3, 2), out);
}

// a b: first b is applied, then a.
function product(a, b) {
  const out = new Float32Array(16);
  for (let column = 0; column < 4; column++)
    for (let row = 0; row < 4; row++) {
      let sum = 0;
      for (let k = 0; k < 4; k++) sum += a[k * 4 + row] * b[column * 4 + k];
      out[column * 4 + row] = sum;
    }
  return out;
}

function transformPoint(m, [x, y, z], w = 1) {
  return [0, 1, 2].map((row) => m[row] * x + m[4 + row] * y + m[8 + row] * z + m[12 + row] * w);
}

const minus = (a, b) => [a[0] - b[0], a[1] - b[1], a[2] - b[2]];
const dot = (a, b) => a[0] * b[0] + a[1] * b[1] + a[2] * b[2];
const cross = (a, b) => [a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]];
const unit = (a) => { const n = Math.hypot(...a) || 1; return [a[0] / n, a[1] / n, a[2] / n]; };

// From the world to what an eye sees that looks at a target, with z of the world upward.
function lookAt(eye, target) {
  const back = unit(minus(eye, target)), right = unit(cross([0, 0, 1], back)), up = cross(back, right);
  return new Float32Array([
    right[0], up[0], back[0], 0, right[1], up[1], back[1], 0, right[2], up[2], back[2], 0,
    -dot(right, eye), -dot(up, eye), -dot(back, eye), 1,
  ]);
}

function perspective(angle, aspect, near, far) {
  const f = 1 / Math.tan(angle / 2), depth = near - far;
  return new Float32Array([
    f / aspect, 0, 0, 0, 0, f, 0, 0, 0, 0, (far + near) / depth, -1, 0, 0, (2 * far * near) / depth, 0,
  ]);
}

// Presses everything along the light onto a plane through `point`: the shadow on it.
function shadowMatrix(normal, point, light) {
  const slope = dot(normal, light), height = dot(normal, point), out = new Float32Array(16);
  for (let column = 0; column < 3; column++)
    for (let row = 0; row < 3; row++)
      out[column * 4 + row] = (row === column ? 1 : 0) - (light[row] * normal[column]) / slope;
  for (let row = 0; row < 3; row++) out[12 + row] = (light[row] * height) / slope;
  out[15] = 1;
  return out;
}
