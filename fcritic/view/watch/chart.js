// One panel: axes, thin lines of seeds, strong lines of means, and the values where the pointer is.

import { between } from "/lines.js";

const LEFT = 52, RIGHT = 8, TOP = 8, BOTTOM = 24;
const TIPS = 8; // lines whose values are shown at the pointer

export function short(value) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  if (size >= 1e6) return `${Number((value / 1e6).toPrecision(4))}M`;
  if (size >= 1e4) return `${Number((value / 1e3).toPrecision(4))}k`;
  return size !== 0 && size < 1e-3 ? value.toExponential(1) : String(Number(value.toPrecision(4)));
}

// About `count` round numbers between two.
export function ticks(low, high, count) {
  const rough = (high - low) / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((factor) => factor * power).find((each) => each >= rough * 0.999);
  const found = [];
  for (let tick = Math.ceil(low / step) * step; tick <= high + step * 0.02; tick += step) found.push(tick);
  return found;
}

export class Chart {
  constructor() {
    this.figure = document.createElement("figure");
    this.caption = this.figure.appendChild(document.createElement("figcaption"));
    this.canvas = this.figure.appendChild(document.createElement("canvas"));
    this.canvas.setAttribute("role", "img");
    this.tip = this.figure.appendChild(document.createElement("div"));
    this.tip.className = "tip";
    this.tip.hidden = true;
    this.canvas.addEventListener("pointermove", (event) => this.point(event.offsetX, event.offsetY));
    this.canvas.addEventListener("pointerleave", () => this.point(null, null));
  }

  show(title, quiet, lines, choice) {
    const more = document.createElement("span");
    more.textContent = quiet ? ` ${quiet}` : "";
    this.caption.replaceChildren(title, more);
    this.canvas.setAttribute("aria-label", `${title} ${quiet}: ${lines.means.map((line) => line.name).join("; ")}`);
    Object.assign(this, { lines, choice });
    this.paint();
    if (this.pointer) this.point(...this.pointer);
  }

  range() {
    const { seeds, means } = this.lines;
    const drawn = this.choice.seeds ? seeds : means;
    let [x0, x1, low, high] = [Infinity, -Infinity, Infinity, -Infinity];
    for (const line of drawn) {
      for (let place = 0; place < line.xs.length; place += 1) {
        const [x, y] = [line.xs[place], line.ys[place]];
        if (x === null || y === null) continue;
        x0 = Math.min(x0, x); x1 = Math.max(x1, x); low = Math.min(low, y); high = Math.max(high, y);
      }
    }
    if (x0 > x1) return null;
    const room = (high - low || Math.abs(high) || 1) * 0.04;
    return { x0: Math.min(0, x0), x1: x1 > Math.min(0, x0) ? x1 : x0 + 1, low: low - room, high: high + room };
  }

  paint() {
    const ratio = window.devicePixelRatio || 1;
    const [width, height] = [this.canvas.clientWidth, this.canvas.clientHeight];
    this.canvas.width = width * ratio;
    this.canvas.height = height * ratio;
    const pen = this.canvas.getContext("2d");
    pen.scale(ratio, ratio);
    const style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue(name).trim();
    pen.font = "12px system-ui, sans-serif";
    pen.fillStyle = colour("--quiet");
    this.area = this.range();
    if (!this.area) {
      pen.fillText("no rows of this kind yet", LEFT, height / 2);
      return;
    }
    const { x0, x1, low, high } = this.area;
    this.x = (value) => LEFT + ((width - LEFT - RIGHT) * (value - x0)) / (x1 - x0);
    this.y = (value) => TOP + ((height - TOP - BOTTOM) * (high - value)) / (high - low);
    this.axes(pen, width, height, colour("--line"));
    if (this.choice.seeds) this.strokes(pen, this.lines.seeds, 1, this.lines.seeds.length > 60 ? 0.22 : 0.4);
    this.strokes(pen, this.lines.means, 2.2, 1);
  }

  axes(pen, width, height, grid) {
    pen.strokeStyle = grid;
    pen.lineWidth = 1;
    pen.textAlign = "right";
    pen.textBaseline = "middle";
    for (const tick of ticks(this.area.low, this.area.high, 6)) {
      const y = Math.round(this.y(tick)) + 0.5;
      pen.beginPath();
      pen.moveTo(LEFT, y);
      pen.lineTo(width - RIGHT, y);
      pen.stroke();
      pen.fillText(short(tick), LEFT - 6, y);
    }
    pen.textBaseline = "alphabetic";
    const unit = this.choice.x === "hours" ? " h" : "";
    for (const tick of ticks(this.area.x0, this.area.x1, width < 420 ? 4 : 6)) {
      pen.textAlign = this.x(tick) > width - 24 ? "right" : "center";
      pen.fillText(`${short(tick)}${unit}`, Math.min(this.x(tick), width - 2), height - 6);
    }
  }

  strokes(pen, lines, thickness, opacity) {
    pen.lineWidth = thickness;
    pen.globalAlpha = opacity;
    pen.lineJoin = "round";
    for (const line of lines) {
      pen.strokeStyle = line.colour;
      pen.beginPath();
      let drawing = false;
      for (let place = 0; place < line.xs.length; place += 1) {
        if (line.ys[place] === null || line.xs[place] === null) {
          drawing = false;
        } else {
          pen[drawing ? "lineTo" : "moveTo"](this.x(line.xs[place]), this.y(line.ys[place]));
          drawing = true;
        }
      }
      pen.stroke();
    }
    pen.globalAlpha = 1;
  }

  point(left, top) {
    this.pointer = left === null ? null : [left, top];
    this.tip.hidden = true;
    if (left === null || !this.area) return;
    const { x0, x1 } = this.area;
    const [start, end] = [this.x(x0), this.x(x1)];
    const x = x0 + ((x1 - x0) * (Math.min(Math.max(left, start), end) - start)) / (end - start);
    const at = (line) => ({ line, value: between(line.xs, line.ys, x) });
    const near = (entry) => Math.abs(this.y(entry.value) - top);
    const known = (lines) => lines.map(at).filter((entry) => entry.value !== null).sort((a, b) => near(a) - near(b));
    const means = known(this.lines.means).slice(0, TIPS);
    const seed = this.choice.seeds ? known(this.lines.seeds).slice(0, 1) : [];
    this.paint();
    const pen = this.canvas.getContext("2d");
    pen.strokeStyle = getComputedStyle(document.documentElement).getPropertyValue("--quiet").trim();
    pen.lineWidth = 1;
    pen.beginPath();
    pen.moveTo(this.x(x), TOP);
    pen.lineTo(this.x(x), this.canvas.clientHeight - BOTTOM);
    pen.stroke();
    this.strokes(pen, seed.map((entry) => entry.line), 2, 1);
    const unit = this.choice.x === "hours" ? "hours" : "frames";
    const head = document.createElement("div");
    head.textContent = `${short(x)} ${unit}`;
    means.sort((a, b) => b.value - a.value);
    this.tip.replaceChildren(head, ...[...means, ...seed].map(entryOf));
    this.tip.hidden = false;
    const room = this.figure.clientWidth - this.tip.offsetWidth;
    this.tip.style.left = `${Math.max(0, Math.min(left + 14 > room ? left - this.tip.offsetWidth - 14 : left + 14, room))}px`;
    this.tip.style.top = `${this.canvas.offsetTop + TOP}px`;
  }
}

function entryOf({ line, value }) {
  const entry = document.createElement("div");
  const mark = entry.appendChild(document.createElement("i"));
  mark.style.background = line.colour;
  entry.appendChild(document.createElement("span")).textContent = line.name;
  entry.appendChild(document.createElement("b")).textContent = short(value);
  return entry;
}
