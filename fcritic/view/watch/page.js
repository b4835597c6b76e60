// Asks for what is new, keeps it, and shows what the controls choose. Names come from strangers: they are only ever text.

import { Chart } from "/chart.js";
import { filtered, groupsOf, linesOf, panelsOf } from "/lines.js";
import { Table } from "/table.js";

const EVERY = 2000; // milliseconds between questions
const MOST_PANELS = 16;
const NAMES = {
  "evaluation/mean_actor": "mean actor",
  "evaluation/best_actor": "best actor",
  "episode/return": "rollout return",
  "train/critic_loss": "critic loss",
};
const KINDS = { evaluation: "Evaluation of every actor", episode: "Training episodes", train: "Updates" };

const find = (name) => document.getElementById(name);
const choice = {
  filter: "", state: "", group: "recipe", x: "frames", smooth: 0, seeds: true, split: true,
  metrics: ["evaluation/mean_actor"],
};
const runs = new Map(), curves = new Map(), hidden = new Set(), charts = [];
let known = [], revision = "", asked = "", reading = { behind: 0, size: 1 }, timer = 0, waiting = false;

const table = new Table(find("table"), () => changed(true));

const label = (metric) => NAMES[metric] ?? metric.split("/")[1].replaceAll("_", " ");

function fromAddress() {
  for (const [name, value] of new URLSearchParams(location.hash.slice(1))) {
    if (name === "metrics") choice.metrics = value.split(",").filter(Boolean);
    else if (name === "smooth") choice.smooth = Math.min(Math.max(Number(value) || 0, 0), 0.95);
    else if (typeof choice[name] === "boolean") choice[name] = value === "true";
    else if (name in choice) choice[name] = value;
  }
  for (const name of ["filter", "group", "x", "smooth"]) find(name).value = choice[name];
  for (const name of ["seeds", "split"]) find(name).checked = choice[name];
}

function toAddress() {
  history.replaceState(null, "", `#${new URLSearchParams({ ...choice, metrics: choice.metrics.join(",") })}`);
}

for (const name of ["filter", "group", "x", "smooth"]) {
  find(name).addEventListener("input", () => {
    choice[name] = name === "smooth" ? Number(find(name).value) : find(name).value;
    if (name === "group") hidden.clear();
    changed(name === "filter");
  });
}
for (const name of ["seeds", "split"]) {
  find(name).addEventListener("input", () => {
    choice[name] = find(name).checked;
    changed(false);
  });
}
window.addEventListener("resize", () => draw());
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => draw());

// A control was used: draw what is here and, where other curves are needed, ask for them.
function changed(ask) {
  toAddress();
  draw();
  if (ask) {
    clearTimeout(timer);
    timer = setTimeout(poll, 150);
  }
}

function chosenRuns() {
  const shown = filtered(runs, choice);
  const ticked = shown.filter((run) => table.picked.has(run.id));
  return { shown, drawn: ticked.length ? ticked : shown };
}

async function poll() {
  clearTimeout(timer);
  if (waiting) return;
  waiting = true;
  const { drawn } = chosenRuns();
  const picked = drawn.length && drawn.length < Math.min(runs.size, 300) ? drawn.map((run) => run.id) : [];
  const question = `metrics=${encodeURIComponent(choice.metrics.join(","))}&runs=${picked.join(",")}`;
  const since = question === asked ? revision : "";
  try {
    const answer = await fetch(`/data.json?${question}&since=${since}`);
    if (!answer.ok) throw new Error(answer.statusText);
    take(await answer.json(), since === "");
    asked = question;
    find("live").classList.remove("lost");
  } catch {
    asked = "";
    find("live").classList.add("lost");
    find("live").textContent = "no answer: fcritic watch has ended, or is busy";
  }
  waiting = false;
  timer = setTimeout(poll, reading.behind && asked ? 50 : EVERY);
}

function take(answer, whole) {
  revision = answer.revision;
  reading = answer;
  table.clockOffset = answer.time - Date.now() / 1000;
  const ids = new Set(answer.ids);
  for (const id of runs.keys()) if (!ids.has(id)) { runs.delete(id); curves.delete(id); }
  for (const run of answer.runs) runs.set(run.id, run);
  if (whole) curves.clear();
  for (const [id, found] of Object.entries(answer.curves)) curves.set(id, found);
  if (answer.metrics.join() !== known.join()) {
    known = answer.metrics;
    chooser();
  }
  const part = Math.round(100 * (1 - answer.behind / Math.max(answer.size, 1)));
  find("live").textContent = answer.behind ? `reading older rows, ${part} %` : "up to date";
  draw();
}

function chooser() {
  const parts = [];
  let last = "";
  const main = Object.keys(NAMES);
  const rank = (metric) => `${["evaluation", "episode", "train"].indexOf(metric.split("/")[0]) >>> 0} ${(main.indexOf(metric) >>> 0) + 1e10} ${metric}`;
  for (const metric of [...known].sort((a, b) => (rank(a) < rank(b) ? -1 : 1))) {
    const kind = metric.split("/")[0];
    if (kind !== last) parts.push(Object.assign(document.createElement("b"), { textContent: KINDS[kind] ?? kind }));
    last = kind;
    const line = document.createElement("label");
    const tick = line.appendChild(document.createElement("input"));
    Object.assign(tick, { type: "checkbox", checked: choice.metrics.includes(metric) });
    tick.addEventListener("change", () => {
      choice.metrics = known.filter((each) => (each === metric ? tick.checked : choice.metrics.includes(each)));
      changed(true);
    });
    line.append(label(metric));
    parts.push(line);
  }
  find("metrics").replaceChildren(...parts);
}

function chip(text, colour, pressed, act) {
  const button = Object.assign(document.createElement("button"), { textContent: text, title: text });
  button.setAttribute("aria-pressed", pressed);
  if (colour) button.prepend(Object.assign(document.createElement("i")));
  if (colour) button.firstChild.style.background = colour;
  button.addEventListener("click", act);
  return button;
}

function states() {
  const counts = new Map();
  for (const run of runs.values()) counts.set(run.state, (counts.get(run.state) ?? 0) + 1);
  const chips = [...counts].sort().map(([state, count]) =>
    chip(`${count} ${state}`, "", choice.state === state, () => {
      choice.state = choice.state === state ? "" : state;
      changed(true);
    }),
  );
  find("states").replaceChildren(...chips);
}

function legend(groups) {
  const chips = [...groups].slice(0, 40).map(([group, colour]) => {
    const button = chip(group, colour, !hidden.has(group), () => {
      hidden[hidden.has(group) ? "delete" : "add"](group);
      draw();
    });
    button.classList.toggle("off", hidden.has(group));
    return button;
  });
  if (groups.size > 40) chips.push(Object.assign(document.createElement("span"), { textContent: `and ${groups.size - 40} more` }));
  find("legend").replaceChildren(...chips);
}

function draw() {
  const { shown, drawn } = chosenRuns();
  const groups = groupsOf(drawn, choice);
  const panels = panelsOf(drawn, choice);
  states();
  legend(groups);
  while (charts.length > Math.min(panels.length, MOST_PANELS)) charts.pop().figure.remove();
  while (charts.length < Math.min(panels.length, MOST_PANELS)) {
    charts.push(new Chart());
    find("panels").append(charts.at(-1).figure);
  }
  let timeless = 0;
  charts.forEach((chart, place) => {
    const panel = panels[place];
    const lines = linesOf(panel, choice, groups, hidden, curves);
    timeless = Math.max(timeless, lines.timeless);
    chart.show(panel.task ?? label(panel.metric), panel.task === null ? "" : label(panel.metric), lines, choice);
  });
  const notes = [];
  if (!runs.size && revision) notes.push("There is no run below this folder yet; it will appear here by itself.");
  else if (!shown.length && revision) notes.push("No run fits the filter.");
  if (panels.length > MOST_PANELS) notes.push(`${panels.length - MOST_PANELS} more panels are not drawn: filter, or choose fewer curves.`);
  if (timeless) notes.push(`${timeless} runs have no journal, so their hours are not known.`);
  find("note").textContent = notes.join(" ");
  table.show(shown);
}

fromAddress();
poll();
