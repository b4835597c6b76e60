// From runs and their curves to the lines of a panel: filter, group, hours, smoothing, means.

export const COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8a63b8", "#7f7f7f"];

const GRID = 160; // places at which the mean of a group is taken

const byName = (a, b) => a.name.localeCompare(b.name, "en", { numeric: true });

export function filtered(runs, choice) {
  const words = choice.filter.toLowerCase().split(/\s+/).filter(Boolean);
  const text = (run) => `${run.name} ${run.recipe} ${run.task} ${run.state}`.toLowerCase();
  return [...runs.values()]
    .filter((run) => !choice.state || run.state === choice.state)
    .filter((run) => words.every((word) => text(run).includes(word)))
    .sort(byName);
}

// Runs are one group where their options are the same, too.
export function groupOf(run, choice) {
  const recipe = run.variant ? `${run.recipe}, ${run.variant}` : run.recipe;
  if (choice.group === "recipe") return recipe;
  if (choice.group === "task") return run.task;
  return choice.group === "both" ? `${recipe} on ${run.task}` : run.name;
}

// Every group with its colour, in the order of names; the same for all panels.
export function groupsOf(runs, choice) {
  const names = [...new Set(runs.map((run) => groupOf(run, choice)))];
  names.sort((a, b) => a.localeCompare(b, "en", { numeric: true }));
  return new Map(names.map((name, place) => [name, COLOURS[place % COLOURS.length]]));
}

// One panel for each curve that is chosen and, if wanted, each task.
export function panelsOf(runs, choice) {
  const tasks = choice.split ? [...new Set(runs.map((run) => run.task))].sort() : [null];
  return choice.metrics.flatMap((metric) =>
    tasks.map((task) => ({ metric, task, runs: task === null ? runs : runs.filter((run) => run.task === task) })),
  );
}

// The lines of single seeds and the means of groups. A line is {group, colour, name, xs, ys}.
export function linesOf(panel, choice, groups, hidden, curves) {
  const seeds = [];
  let timeless = 0;
  for (const run of panel.runs) {
    const group = groupOf(run, choice);
    if (hidden.has(group)) continue;
    const found = curves.get(run.id)?.[panel.metric] ?? [];
    if (choice.x === "hours" && found.length && run.clock[0].length < 2) {
      timeless += 1;
      continue;
    }
    for (const [seed, frames, values] of found) {
      const xs = choice.x === "hours" ? frames.map((frame) => between(run.clock[0], run.clock[1], frame)) : frames;
      const ys = smoothed(values, choice.smooth);
      seeds.push({ group, colour: groups.get(group), name: `${run.name}, seed ${seed}`, xs, ys });
    }
  }
  const means = [...groups.keys()]
    .map((group) => meanOf(group, groups.get(group), seeds.filter((line) => line.group === group)))
    .filter(Boolean);
  return { seeds, means, timeless };
}

// Running mean that forgets: each point keeps the share `weight` of the mean before it. Gaps stay gaps.
export function smoothed(values, weight) {
  if (!weight) return values;
  let sum = 0, mass = 0;
  return values.map((value) => {
    if (value === null) return null;
    sum = weight * sum + value;
    mass = weight * mass + 1;
    return sum / mass;
  });
}

// The value of a line at x, or null outside of it and beside a gap.
export function between(xs, ys, x) {
  const last = xs.length - 1;
  if (last < 0 || x < xs[0] || x > xs[last]) return null;
  let low = 0, high = last;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (xs[middle] <= x) low = middle;
    else high = middle;
  }
  if (xs[low] === x || low === last) return ys[low];
  if (ys[low] === null || ys[high] === null) return null;
  const share = xs[high] > xs[low] ? (x - xs[low]) / (xs[high] - xs[low]) : 1;
  return ys[low] + share * (ys[high] - ys[low]);
}

// The mean over the lines of a group, as far as at least half of them go.
function meanOf(group, colour, lines) {
  if (!lines.length) return null;
  const known = lines.filter((line) => line.xs.length);
  if (!known.length) return null;
  const start = Math.min(...known.map((line) => line.xs[0]));
  const end = Math.max(...known.map((line) => line.xs[line.xs.length - 1]));
  const xs = [], ys = [];
  for (let place = 0; place < GRID; place += 1) {
    const x = start + ((end - start) * place) / (GRID - 1);
    const values = known.map((line) => between(line.xs, line.ys, x)).filter((value) => value !== null);
    if (2 * values.length < known.length || !values.length) continue;
    xs.push(x);
    ys.push(values.reduce((sum, value) => sum + value, 0) / values.length);
  }
  const name = `${group}: mean of ${known.length} ${known.length === 1 ? "seed" : "seeds"}`;
  return { group, colour, name, xs, ys };
}
