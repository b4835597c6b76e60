// The camera: turns around a target that may follow the body, by mouse, touch and wheel.

const OPENING = (40 * Math.PI) / 180;

class Camera {
  constructor(canvas, radius, onChange) {
    Object.assign(this, { canvas, radius, onChange, follow: true, pointers: new Map() });
    this.reset();
    const listen = (name, act) => canvas.addEventListener(name, act, { passive: false });
    listen("pointerdown", (event) => this.press(event));
    listen("pointermove", (event) => this.move(event));
    for (const name of ["pointerup", "pointercancel"]) listen(name, (event) => this.release(event));
    listen("contextmenu", (event) => event.preventDefault());
    listen("wheel", (event) => {
      event.preventDefault();
      this.zoom(Math.exp(Math.max(-60, Math.min(60, event.deltaY)) * 0.003));
    });
  }

  reset() {
    Object.assign(this, { azimuth: (-70 * Math.PI) / 180, elevation: (16 * Math.PI) / 180, shift: [0, 0, 0] });
    this.distance = (1.5 * this.radius) / Math.tan(OPENING / 2);
    this.onChange();
  }

  press(event) {
    this.canvas.setPointerCapture(event.pointerId);
    this.pointers.set(event.pointerId, [event.clientX, event.clientY]);
  }

  release(event) {
    this.pointers.delete(event.pointerId);
    this.onChange();
  }

  move(event) {
    const before = this.pointers.get(event.pointerId);
    if (!before) return;
    event.preventDefault();
    const now = [event.clientX, event.clientY], step = [now[0] - before[0], now[1] - before[1]];
    if (this.pointers.size >= 2) {
      const [other] = [...this.pointers].filter(([id]) => id !== event.pointerId).map(([, place]) => place);
      const apart = (a) => Math.max(10, Math.hypot(a[0] - other[0], a[1] - other[1]));
      this.pan(step[0] / 2, step[1] / 2);
      this.zoom(apart(before) / apart(now));
    } else if (event.buttons & 6 || event.shiftKey) {
      this.pan(...step);
    } else {
      this.turn(-step[0] * 0.008, step[1] * 0.008);
    }
    this.pointers.set(event.pointerId, now);
  }

  turn(sideways, upward) {
    this.azimuth += sideways;
    this.elevation = Math.max(-1.5, Math.min(1.5, this.elevation + upward));
    this.onChange();
  }

  zoom(factor) {
    this.distance = Math.max(0.05 * this.radius, Math.min(60 * this.radius, this.distance * factor));
    this.onChange();
  }

  pan(x, y) {
    const size = (2 * this.distance * Math.tan(OPENING / 2)) / this.canvas.clientHeight, back = this.direction();
    const right = unit(cross([0, 0, 1], back)), up = cross(back, right);
    this.shift = this.shift.map((each, k) => each - right[k] * x * size + up[k] * y * size);
    this.onChange();
  }

  direction() {
    const { azimuth, elevation } = this, flat = Math.cos(elevation);
    return [flat * Math.cos(azimuth), flat * Math.sin(azimuth), Math.sin(elevation)];
  }

  // What the drawing needs, where `centre` is what the camera is after.
  view(centre, aspect) {
    // On a narrow screen the camera stands farther back, so that the body fits from side to side too.
    const distance = this.distance * Math.max(1, 1.1 / aspect), back = this.direction();
    const target = centre.map((each, k) => each + this.shift[k]);
    const eye = target.map((each, k) => each + back[k] * distance), reach = 4 * distance + 8 * this.radius;
    const lens = perspective(OPENING, aspect, distance * 0.02, distance + 2 * reach);
    return { eye, target, reach, matrix: product(lens, lookAt(eye, target)) };
  }
}
