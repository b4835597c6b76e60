// SVG by hand: elements, scales, axes.

const make = (tag, attributes = {}, text = "") => {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  if (text !== "") element.textContent = text;
  return element;
};

const html = (tag, text = "", className = "") => Object.assign(document.createElement(tag), { textContent: text, className });

const short = (value) => {
  if (value === null || value === undefined) return "–";
  const size = Math.abs(value);
  return size >= 1e5 || (size > 0 && size < 1e-3) ? value.toExponential(1) : String(Number(value.toPrecision(3)));
};

const STOPS = [[46, 26, 92], [30, 104, 142], [48, 176, 122], [246, 224, 82]];

// From dark blue over green to yellow; a share of 0 to 1.
const shade = (share) => {
  const place = Math.min(Math.max(Number.isFinite(share) ? share : 0, 0), 1) * (STOPS.length - 1);
  const low = Math.min(Math.floor(place), STOPS.length - 2);
  return `rgb(${STOPS[low].map((from, i) => Math.round(from + (place - low) * (STOPS[low + 1][i] - from))).join()})`;
};

const PALETTE = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8a63b8", "#7f7f7f", "#a04000", "#2e86ab"];

const extent = (values) => {
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const room = (high - low || Math.abs(high) || 1) * 0.06;
  return [low - room, high + room];
};

const ticks = (low, high, count) => {
  const rough = (high - low) / count, power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((factor) => factor * power).find((each) => each >= rough * 0.999);
  const found = [];
  for (let tick = Math.ceil(low / step - 1e-9) * step; tick <= high + step * 1e-9; tick += step) found.push(tick);
  return found;
};

// A picture with axes; returns the svg and functions from values to places.
const axes = (width, height, [x0, x1], [y0, y1], xName, yName) => {
  const [left, right, top, bottom] = [48, 12, 10, 40];
  const svg = make("svg", { viewBox: `0 0 ${width} ${height}`, role: "img" });
  const x = (value) => left + ((width - left - right) * (value - x0)) / (x1 - x0);
  const y = (value) => height - bottom - ((height - top - bottom) * (value - y0)) / (y1 - y0);
  for (const tick of ticks(y0, y1, 5)) {
    svg.append(make("line", { class: "grid", x1: left, x2: width - right, y1: y(tick), y2: y(tick) }));
    svg.append(make("text", { x: left - 6, y: y(tick) + 4, "text-anchor": "end" }, short(tick)));
  }
  for (const tick of ticks(x0, x1, 5)) svg.append(make("text", { x: x(tick), y: height - bottom + 16, "text-anchor": "middle" }, short(tick)));
  svg.append(make("text", { x: (left + width - right) / 2, y: height - 6, "text-anchor": "middle" }, xName));
  if (yName) svg.append(make("text", { x: left + 4, y: top + 8 }, yName));
  return { svg, x, y };
};

const path = (xs, ys, x, y) => xs.map((value, place) => `${place ? "L" : "M"}${x(value).toFixed(1)},${y(ys[place]).toFixed(1)}`).join("");

const figure = (title, svg) => {
  const found = html("figure");
  svg.setAttribute("aria-label", title);
  found.append(html("figcaption", title), svg);
  return found;
};
