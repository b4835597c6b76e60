// The table of runs: state, progress, speed, returns, health; a name opens the details.

import { short } from "/chart.js";

export function duration(seconds) {
  if (seconds === null || seconds === undefined || !Number.isFinite(seconds)) return "–";
  if (seconds < 100) return `${Math.round(seconds)} s`;
  const minutes = Math.round(seconds / 60);
  if (minutes < 100) return `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? `${hours} h ${minutes % 60} min` : `${(seconds / 86400).toFixed(1)} days`;
}

const share = (run) => (run.steps ? Math.min(run.frame / run.steps, 1) : 0);

const COLUMNS = [
  { title: "run", key: (run) => run.name, kind: "name" },
  { title: "recipe", key: (run) => run.recipe, kind: "text" },
  { title: "task", key: (run) => run.task, kind: "text" },
  { title: "state", key: (run) => run.state, kind: "state text" },
  { title: "health", key: (run) => run.notes.length, kind: "notes" },
  { title: "frames", key: share, kind: "progress" },
  { title: "frames/s", key: (run) => run.speed, text: (run) => short(run.speed) },
  { title: "left", key: (run) => run.left, text: (run) => (run.left === null ? "" : duration(run.left)) },
  { title: "last seen", key: (run) => run.seen, kind: "seen" },
  { title: "mean actor", key: (run) => run.mean_actor, text: (run) => short(run.mean_actor) },
  { title: "best actor", key: (run) => run.best_actor, text: (run) => short(run.best_actor) },
  { title: "rollout", key: (run) => run.rollout, text: (run) => short(run.rollout) },
];

const make = (tag, text = "", className = "") => Object.assign(document.createElement(tag), { textContent: text, className });

export class Table {
  constructor(parent, changed) {
    Object.assign(this, { parent, changed, picked: new Set(), open: new Set(), sort: 0, down: false, clockOffset: 0 });
  }

  show(runs) {
    this.runs = runs;
    const table = make("table");
    const head = table.appendChild(make("thead")).appendChild(make("tr"));
    const all = head.appendChild(make("th")).appendChild(make("input"));
    Object.assign(all, { type: "checkbox", title: "show only ticked runs", checked: this.picked.size > 0 });
    all.addEventListener("change", () => {
      this.picked = new Set(all.checked ? runs.map((run) => run.id) : []);
      this.changed();
    });
    COLUMNS.forEach((column, place) => head.append(this.title(column, place)));
    const body = table.appendChild(make("tbody"));
    for (const run of this.sorted(runs)) {
      body.append(this.row(run));
      if (this.open.has(run.id)) body.append(details(run));
    }
    this.parent.replaceChildren(table);
  }

  sorted(runs) {
    const { key } = COLUMNS[this.sort];
    const order = (a, b) => {
      if (a === null || b === null) return (a === null) - (b === null);
      return (typeof a === "string" ? a.localeCompare(b, "en", { numeric: true }) : a - b) * (this.down ? -1 : 1);
    };
    return [...runs].sort((a, b) => order(key(a), key(b)));
  }

  title(column, place) {
    const cell = make("th", column.title, /name|text|notes/.test(column.kind) ? "text" : "");
    if (place === this.sort) cell.setAttribute("aria-sort", this.down ? "descending" : "ascending");
    cell.addEventListener("click", () => {
      this.down = this.sort === place ? !this.down : false;
      this.sort = place;
      this.show(this.runs);
    });
    return cell;
  }

  row(run) {
    const row = make("tr");
    const tick = row.appendChild(make("td")).appendChild(make("input"));
    Object.assign(tick, { type: "checkbox", checked: this.picked.has(run.id), title: "show only ticked runs" });
    tick.addEventListener("change", () => {
      this.picked[tick.checked ? "add" : "delete"](run.id);
      this.changed();
    });
    for (const column of COLUMNS) row.append(this.cell(run, column));
    return row;
  }

  cell(run, column) {
    const cell = make("td", column.text ? column.text(run) : "", column.kind ?? "");
    if (cell.textContent || column.kind === "seen") cell.dataset.label = column.title;
    if (column.kind === "name") {
      const name = cell.appendChild(make("button", run.name));
      cell.title = run.name;
      name.addEventListener("click", () => {
        this.open[this.open.has(run.id) ? "delete" : "add"](run.id);
        this.show(this.runs);
      });
    } else if (column.kind === "text") {
      cell.textContent = column.key(run);
    } else if (column.kind === "state text") {
      cell.textContent = run.state;
      cell.classList.add(run.state);
    } else if (column.kind === "progress") {
      const bar = make("progress");
      bar.value = share(run);
      cell.append(`${short(run.frame)} of ${short(run.steps)} `, bar);
    } else if (column.kind === "seen") {
      cell.textContent = run.seen ? `${duration(Math.max(Date.now() / 1000 + this.clockOffset - run.seen, 0))} ago` : "–";
    } else if (column.kind === "notes") {
      cell.textContent = cell.title = run.notes.join("; ");
    }
    return cell;
  }
}

function details(run) {
  const row = make("tr", "", "more");
  const cell = row.appendChild(make("td"));
  cell.colSpan = COLUMNS.length + 1;
  const time = run.elapsed === null ? "no journal, so its times are not known" : `${duration(run.elapsed)} of training`;
  cell.append(make("div", `${run.seeds} ${run.seeds === 1 ? "seed" : "seeds"}, ${time}`));
  for (const { seed, returns } of run.actors) {
    cell.append(make("h3", `Last returns of the actors of seed ${seed}`));
    const list = cell.appendChild(make("div", "", "actors"));
    list.append(...returns.map((value) => make("span", short(value))));
  }
  const told = [...run.notes, ...run.warnings.map((each) => `at frame ${short(each.frame)}: ${each.what}`)];
  if (told.length) {
    cell.append(make("h3", "Notes and last warnings"));
    const list = cell.appendChild(make("ul"));
    list.append(...told.map((text) => make("li", text)));
  }
  return row;
}
