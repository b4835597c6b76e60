// Lines over time under one cursor. A press or a drag on a plot goes to that moment.

const COLOURS = ["--first", "--second", "--third"];
const MOST_LINES = 3;
const colourOf = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// A number in few signs.
function brief(value) {
  const size = Math.abs(value);
  if (size === 0) return "0";
  if (size >= 1e5 || size < 1e-3) return value.toExponential(1);
  return value.toFixed(size >= 100 ? 0 : size >= 10 ? 1 : size >= 1 ? 2 : 3);
}

class Trace {
  // `series`: { name, values, told, colour, dashedFrom, band: [low, high] }, of which only values is needed. `told` says
  // more of a name. Names and scales stand in the `left` pixels beside the plot.
  constructor(parent, title, times, series, onSeek, left = 44) {
    Object.assign(this, { times, series, left, end: times[times.length - 1] || 1, readings: [] });
    const many = series.length > MOST_LINES;
    const figure = document.createElement("figure"), caption = document.createElement("figcaption");
    caption.append(Object.assign(document.createElement("b"), { textContent: title }));
    const rows = [{ name: "below 0", colour: "--first" }, { name: "above 0", colour: "--second" }];
    for (const { name, colour, told = "" } of many ? rows : series.filter((each) => each.name)) {
      const mark = Object.assign(document.createElement("span"), { textContent: name, className: "mark", title: told });
      mark.style.setProperty("--mark", `var(${colour})`);
      if (!many) this.readings.push(mark.appendChild(document.createElement("output")));
      caption.append(mark);
    }
    this.plot = Object.assign(document.createElement("div"), { className: "plot" });
    this.canvas = document.createElement("canvas");
    this.cursor = Object.assign(document.createElement("div"), { className: "cursor" });
    this.plot.append(this.canvas, this.cursor);
    if (many) this.nameRows();
    figure.append(caption, this.plot);
    parent.append(figure);
    const seek = (event) => {
      const frame = this.plot.getBoundingClientRect(), inner = frame.width - this.left;
      onSeek((Math.max(0, Math.min(1, (event.clientX - frame.left - this.left) / inner))) * this.end);
    };
    this.plot.addEventListener("pointerdown", (event) => { this.plot.setPointerCapture(event.pointerId); seek(event); });
    this.plot.addEventListener("pointermove", (event) => { if (event.buttons) seek(event); });
  }

  // A name and a reading beside each row.
  nameRows() {
    const names = Object.assign(document.createElement("div"), { className: "rows" });
    names.style.width = `${this.left - 6}px`;
    this.plot.style.height = `max(8.5rem, ${13 * this.series.length}px)`;
    for (const { name, told } of this.series) {
      const row = names.appendChild(Object.assign(document.createElement("div"), { title: told || name }));
      row.append(Object.assign(document.createElement("span"), { textContent: name }));
      this.readings.push(row.appendChild(document.createElement("output")));
    }
    this.plot.append(names);
  }

  // Writes the numbers of a state beside their names.
  tell(state) {
    const named = this.series.filter((each) => each.name);
    this.readings.forEach((reading, k) => { const { values } = named[k]; reading.textContent = brief(values[Math.min(state, values.length - 1)]); });
  }

  range() {
    let low = Infinity, high = -Infinity;
    for (const each of this.series)
      for (const values of [each.values, ...(each.band || [])])
        for (const value of values) { if (value < low) low = value; if (value > high) high = value; }
    if (!(low < high)) [low, high] = [low - 0.5, high + 0.5];
    const room = 0.06 * (high - low);
    return [low - room, high + room];
  }

  draw() {
    const { canvas, plot, left } = this, ratio = window.devicePixelRatio || 1;
    const width = plot.clientWidth, height = plot.clientHeight;
    Object.assign(canvas, { width: Math.round(width * ratio), height: Math.round(height * ratio) });
    const paint = canvas.getContext("2d"), [low, high] = this.range();
    paint.scale(ratio, ratio);
    Object.assign(this, { below: colourOf("--first"), above: colourOf("--second") });
    this.width = width;
    this.x = (time) => left + (time / this.end) * (width - left - 2);
    this.y = (value) => height - 5 - ((value - low) / (high - low)) * (height - 10);
    if (this.series.length > MOST_LINES) return this.drawRows(paint, width, height);
    this.drawScale(paint, low, high, width);
    for (const each of this.series) this.drawSeries(paint, each);
  }

  // Many numbers at once: a row for each, the stronger its colour the farther it is from 0.
  drawRows(paint, width, height) {
    const rows = this.series.length, tall = height / rows, columns = Math.round(width - this.left);
    this.series.forEach(({ values }, row) => {
      let most = 1e-9;
      for (const value of values) most = Math.max(most, Math.abs(value));
      for (let column = 0; column < columns; column++) {
        const value = values[Math.min(values.length - 1, Math.floor((column / columns) * values.length))];
        paint.fillStyle = value < 0 ? this.below : this.above;
        paint.globalAlpha = Math.abs(value) / most;
        paint.fillRect(this.left + column, row * tall, 1, tall - (tall > 6 ? 1 : 0));
      }
      paint.globalAlpha = 1;
    });
  }

  drawScale(paint, low, high, width) {
    const room = (high - low) * 0.06 / 1.12, levels = [low + room, (low + high) / 2, high - room];
    Object.assign(paint, { font: "11px system-ui, sans-serif", textAlign: "right", textBaseline: "middle", lineWidth: 1 });
    for (const level of levels) {
      const y = Math.round(this.y(level)) + 0.5;
      paint.strokeStyle = colourOf("--line");
      paint.beginPath(); paint.moveTo(this.left, y); paint.lineTo(width, y); paint.stroke();
      paint.fillStyle = colourOf("--quiet");
      paint.fillText(brief(Math.abs(level) < 1e-3 * (high - low) ? 0 : level), this.left - 5, Math.max(7, y));
    }
  }

  drawSeries(paint, { values, colour, dashedFrom = Infinity, band }) {
    const line = (from, to, list) => {
      for (let i = from; i < to; i++) paint.lineTo(this.x(this.times[i]), this.y(list[i]));
    };
    paint.strokeStyle = paint.fillStyle = colourOf(colour);
    if (band) {
      paint.globalAlpha = 0.18;
      paint.beginPath();
      line(0, values.length, band[0]);
      for (let i = values.length - 1; i >= 0; i--) paint.lineTo(this.x(this.times[i]), this.y(band[1][i]));
      paint.fill();
      paint.globalAlpha = 1;
    }
    paint.lineWidth = 1.6;
    const cut = Math.min(values.length, dashedFrom);
    paint.beginPath(); line(0, cut, values); paint.stroke();
    if (cut < values.length) {
      paint.setLineDash([4, 4]);
      paint.beginPath(); line(Math.max(0, cut - 1), values.length, values); paint.stroke();
      paint.setLineDash([]);
    }
  }

  point(time) {
    this.cursor.style.transform = `translateX(${this.x(time)}px)`;
  }
}
