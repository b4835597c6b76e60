// The picture: floors, shadows and bodies, drawn with WebGL 2.

const LIGHT = unit([0.35, -0.45, 1]);

// `press` leaves bodies as they are, or flattens them into their shadows.
const BODY_VERTEX = `#version 300 es
in vec3 position; in vec3 normal; in vec4 colour;
uniform mat4 camera, press, body;
out highp vec3 place; out vec3 facing; out vec4 paint;
void main() {
  vec4 world = press * (body * vec4(position, 1.0));
  place = world.xyz; facing = mat3(body) * normal; paint = colour;
  gl_Position = camera * world;
}`;

const BODY_FRAGMENT = `#version 300 es
precision highp float;
in vec3 place, facing; in vec4 paint;
uniform vec3 light, eye;
out vec4 result;
void main() {
  vec3 n = normalize(facing), look = normalize(eye - place);
  float sun = max(dot(n, light), 0.0), sky = 0.5 + 0.5 * n.z;
  float shine = pow(max(dot(n, normalize(light + look)), 0.0), 32.0) * 0.18;
  result = vec4((paint.rgb * (0.22 + 0.28 * sky + 0.62 * sun) + shine) * paint.a, paint.a);
}`;

const FLOOR_VERTEX = `#version 300 es
in vec3 position;
uniform mat4 camera, patch_;
out highp vec3 place;
void main() { vec4 world = patch_ * vec4(position, 1.0); place = world.xyz; gl_Position = camera * world; }`;

// What a floor and a shadow on it share: their place on the floor, where it ends, and how it fades far away.
const ON_FLOOR = `#version 300 es
precision highp float;
in vec3 place;
uniform vec3 middle, origin, along, across;
uniform vec2 extent;
uniform float reach;
out vec4 result;
vec2 local() { vec3 d = place - origin; return vec2(dot(d, along), dot(d, across)); }
float seen(vec2 at) {
  vec2 beyond = step(extent, abs(at)) * step(vec2(1e-9), extent);
  return (1.0 - smoothstep(0.35 * reach, reach, distance(place, middle))) * (1.0 - max(beyond.x, beyond.y));
}`;

const FLOOR_FRAGMENT = `${ON_FLOOR}
uniform vec3 dark, bright; uniform vec2 side; uniform float alpha;
vec2 stripes(vec2 at) {  // from -1 to 1 and back, with edges as soft as a pixel is wide
  vec2 wide = max(fwidth(at), vec2(1e-5));
  vec2 wave = clamp((0.25 - abs(fract(at * 0.5) - 0.5)) * 2.0 / wide, -1.0, 1.0);
  return wave * clamp(1.5 - wide, 0.0, 1.0);
}
void main() {
  vec2 at = local(), wave = stripes(at / side);
  float visible = seen(at) * alpha;
  result = vec4(mix(dark, bright, 0.5 + 0.5 * wave.x * wave.y) * visible, visible);
}`;

const SHADOW_FRAGMENT = `${ON_FLOOR}
void main() {
  float visible = 0.35 * seen(local());
  if (visible <= 0.0) discard;
  result = vec4(0.0, 0.0, 0.0, visible);
}`;

class Drawing {
  constructor(canvas, scene) {
    const open = (wanted) => canvas.getContext("webgl2", { stencil: true, ...wanted });
    // Without a graphics card triangles and smooth edges are dear; a still picture then gets more pixels instead.
    const fast = open({ antialias: true, failIfMajorPerformanceCaveat: true });
    Object.assign(this, { canvas, scene, gl: fast || open({ antialias: false }), sharpness: 1, stillness: fast ? 1 : 2, shadowy: true });
    if (!fast) Object.assign(detail, { round: 14, rings: 6 });
    if (this.gl) this.build();
  }

  build() {
    const { gl, scene } = this;
    this.bodies = this.program(BODY_VERTEX, BODY_FRAGMENT);
    this.floors = this.program(FLOOR_VERTEX, FLOOR_FRAGMENT);
    this.shadows = this.program(BODY_VERTEX, SHADOW_FRAGMENT);
    const meshes = scene.meshes.map(meshOf), groups = new Map();
    for (const shape of scene.shapes.filter((each) => each.kind !== "plane")) {
      const clear = shape.colour[3] < 1, key = `${shape.body} ${clear}`;
      if (!groups.has(key)) groups.set(key, { body: shape.body, clear, parts: [] });
      groups.get(key).parts.push(painted(shape, meshes));
    }
    this.batches = [...groups.values()].map((each) => this.batch(each)).sort((a, b) => a.clear - b.clear);
    this.poses = scene.still.map(([x, y, z, ...q]) => poseMatrix(...q, x, y, z));
    this.planes = scene.shapes.filter((each) => each.kind === "plane").map((each) => this.plane(each));
    gl.enable(gl.DEPTH_TEST);
    gl.enable(gl.BLEND);
    gl.blendFunc(gl.ONE, gl.ONE_MINUS_SRC_ALPHA);
    gl.clearColor(0, 0, 0, 0);
  }

  program(vertex, fragment) {
    const gl = this.gl, made = gl.createProgram();
    for (const [kind, text] of [[gl.VERTEX_SHADER, vertex], [gl.FRAGMENT_SHADER, fragment]]) {
      const shader = gl.createShader(kind);
      gl.shaderSource(shader, text);
      gl.compileShader(shader);
      if (!gl.getShaderParameter(shader, gl.COMPILE_STATUS) && !gl.isContextLost())
        throw new Error(gl.getShaderInfoLog(shader));
      gl.attachShader(made, shader);
    }
    ["position", "normal", "colour"].forEach((name, index) => gl.bindAttribLocation(made, index, name));
    gl.linkProgram(made);
    const places = new Map();
    const at = (name) => { if (!places.has(name)) places.set(name, gl.getUniformLocation(made, name)); return places.get(name); };
    return { made, at };
  }

  batch({ body, clear, parts }) {
    const gl = this.gl, array = gl.createVertexArray(), { corners, triangles } = joined(...parts);
    gl.bindVertexArray(array);
    gl.bindBuffer(gl.ARRAY_BUFFER, gl.createBuffer());
    gl.bufferData(gl.ARRAY_BUFFER, new Float32Array(corners.flat()), gl.STATIC_DRAW);
    gl.bindBuffer(gl.ELEMENT_ARRAY_BUFFER, gl.createBuffer());
    gl.bufferData(gl.ELEMENT_ARRAY_BUFFER, new Uint32Array(triangles), gl.STATIC_DRAW);
    [[3, 0], [3, 12], [4, 24]].forEach(([width, offset], index) => {
      gl.enableVertexAttribArray(index);
      gl.vertexAttribPointer(index, width, gl.FLOAT, false, 40, offset);
    });
    return { body, clear, array, count: triangles.length };
  }

  plane(shape) {
    const gl = this.gl, array = gl.createVertexArray();
    gl.bindVertexArray(array);
    gl.bindBuffer(gl.ARRAY_BUFFER, gl.createBuffer());
    gl.bufferData(gl.ARRAY_BUFFER, new Float32Array([-1, -1, 0, 1, -1, 0, -1, 1, 0, 1, 1, 0]), gl.STATIC_DRAW);
    gl.enableVertexAttribArray(0);
    gl.vertexAttribPointer(0, 3, gl.FLOAT, false, 12, 0);
    return { shape, array, own: poseMatrix(...shape.rotation, ...shape.position) };
  }

  // Fits the picture to its place on the screen; returns width over height.
  fit(still) {
    const { canvas } = this, scale = Math.min(window.devicePixelRatio || 1, 2) * (still ? this.stillness : this.sharpness);
    const width = Math.max(1, Math.round(canvas.clientWidth * scale)), height = Math.max(1, Math.round(canvas.clientHeight * scale));
    if (canvas.width !== width || canvas.height !== height) Object.assign(canvas, { width, height });
    return width / height;
  }

  draw(track, state, share, view) {
    const gl = this.gl;
    gl.viewport(0, 0, this.canvas.width, this.canvas.height);
    gl.clear(gl.COLOR_BUFFER_BIT | gl.DEPTH_BUFFER_BIT | gl.STENCIL_BUFFER_BIT);
    this.scene.moving.forEach((body, index) => bodyMatrix(track, index, state, share, this.poses[body]));
    for (const plane of this.planes) plane.pose = product(this.poses[plane.shape.body], plane.own);
    gl.enable(gl.CULL_FACE);
    for (const plane of this.planes) this.drawFloor(plane, view);
    const ground = this.planes.find((plane) => plane.shape.body === 0);
    if (ground && this.shadowy) this.drawShadows(ground, view);
    gl.useProgram(this.bodies.made);
    gl.uniformMatrix4fv(this.bodies.at("camera"), false, view.matrix);
    gl.uniformMatrix4fv(this.bodies.at("press"), false, poseMatrix(1, 0, 0, 0, 0, 0, 0));
    gl.uniform3fv(this.bodies.at("light"), LIGHT);
    gl.uniform3fv(this.bodies.at("eye"), view.eye);
    for (const batch of this.batches) {
      gl.depthMask(!batch.clear);
      this.drawBatch(this.bodies, batch);
    }
    gl.depthMask(true);
  }

  drawBatch(program, batch) {
    const gl = this.gl;
    gl.uniformMatrix4fv(program.at("body"), false, this.poses[batch.body]);
    gl.bindVertexArray(batch.array);
    gl.drawElements(gl.TRIANGLES, batch.count, gl.UNSIGNED_INT, 0);
  }

  // Where a floor lies and how far it is seen; returns its normal and a point of it.
  useFloor(program, plane, view) {
    const gl = this.gl, axis = (k) => Array.from(plane.pose.slice(4 * k, 4 * k + 3));
    gl.useProgram(program.made);
    gl.uniformMatrix4fv(program.at("camera"), false, view.matrix);
    gl.uniform3fv(program.at("middle"), view.target);
    gl.uniform3fv(program.at("along"), axis(0));
    gl.uniform3fv(program.at("across"), axis(1));
    gl.uniform3fv(program.at("origin"), axis(3));
    gl.uniform2f(program.at("extent"), plane.shape.size[0], plane.shape.size[1]);
    gl.uniform1f(program.at("reach"), view.reach);
    return { normal: axis(2), point: axis(3), along: axis(0), across: axis(1) };
  }

  drawFloor(plane, view) {
    const gl = this.gl, { checker, colour, size } = plane.shape;
    const { point, along, across } = this.useFloor(this.floors, plane, view);
    // Only the part that can be seen is drawn, around what the camera looks at.
    const away = minus(view.target, point), half = [0, 1].map((k) => (size[k] > 0 ? size[k] : Infinity));
    const span = [along, across].map((axis, k) => {
      const middle = dot(away, axis);
      return [Math.max(-half[k], middle - view.reach), Math.min(half[k], middle + view.reach)];
    });
    if (span.some(([low, high]) => low >= high)) return;
    const scale = span.map(([low, high]) => (high - low) / 2), centre = span.map(([low, high]) => (high + low) / 2);
    const patch = new Float32Array([scale[0], 0, 0, 0, 0, scale[1], 0, 0, 0, 0, 1, 0, centre[0], centre[1], 0, 1]);
    gl.uniformMatrix4fv(this.floors.at("patch_"), false, product(plane.pose, patch));
    gl.uniform3fv(this.floors.at("dark"), checker.colours[0]);
    gl.uniform3fv(this.floors.at("bright"), checker.colours[1]);
    gl.uniform2fv(this.floors.at("side"), checker.side);
    gl.uniform1f(this.floors.at("alpha"), colour[3]);
    gl.bindVertexArray(plane.array);
    gl.drawArrays(gl.TRIANGLE_STRIP, 0, 4);
  }

  // Each spot of the floor is darkened once, however many bodies stand between it and the light.
  drawShadows(plane, view) {
    const gl = this.gl, { normal, point } = this.useFloor(this.shadows, plane, view);
    if (dot(normal, LIGHT) < 0.1 || dot(normal, minus(view.eye, point)) <= 0) return;
    gl.uniformMatrix4fv(this.shadows.at("press"), false, shadowMatrix(normal, point, LIGHT));
    gl.enable(gl.STENCIL_TEST);
    gl.stencilFunc(gl.EQUAL, 0, 255);
    gl.stencilOp(gl.KEEP, gl.KEEP, gl.INCR);
    gl.enable(gl.POLYGON_OFFSET_FILL);
    gl.polygonOffset(-2, -2);
    gl.depthMask(false);
    for (const batch of this.batches.filter((each) => !each.clear)) this.drawBatch(this.shadows, batch);
    gl.depthMask(true);
    gl.disable(gl.POLYGON_OFFSET_FILL);
    gl.disable(gl.STENCIL_TEST);
  }
}
