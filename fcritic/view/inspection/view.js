// The page of `fcritic inspect`: draws the numbers that stand in it. Names are only ever text.

const data = JSON.parse(document.getElementById("data").textContent);
const { agent, places, slice } = data;
const choice = { critic: slice.corrected ? "corrected" : "mean", returns: "discounted", same: false, cell: null };
const MOST_ROWS = 64;
const names = agent.corners.map((actor) => `actor ${actor}`);
const at = (name) => document.getElementById(name);

const meanOver = (rows) => rows[0].map((_, place) => rows.reduce((sum, row) => sum + row[place], 0) / rows.length);
const predictedOf = (part) => ({ mean: () => meanOver(part.predicted), corrected: () => part.corrected }[choice.critic] ?? (() => part.predicted[Number(choice.critic)]))();
const one = () => (Number.isNaN(Number(choice.critic)) ? 0 : Number(choice.critic)); // of those that have no mean
const agreementOf = (part) => part.agreement[choice.critic] ?? part.agreement.critics[Number(choice.critic)];

function head() {
  document.title = `inspect ${agent.run}`;
  at("title").textContent = `Inside ${agent.run}`;
  at("facts").textContent = `${agent.recipe} on ${agent.task}, seed ${agent.seed}, frame ${agent.frame.toLocaleString("en")}: ${agent.actors} actors, ${agent.critics} critics. ${agent.episodes} ${agent.episodes === 1 ? "episode" : "episodes"} of each policy, all from the same first states.`;
  at("plane").textContent = `Every cell is one policy: its parameters are a + x (b − a) + y (c − a), where a, b and c are ${names.join(", ")}. The others were never run in training. Left: what the critics predict from the policy's network, the mean over first states s of Q(π, s, π(s))${slice.corrected ? "; corrected, that is with the Bellman equation of each policy solved on the replay, in the features of the critics' last layers" : ""}. Right: what it reached when it was run.`;
  const beyond = agent.beyond > 0.01 ? ` Episodes end after ${agent.longest} actions, a critic's value does not: up to ${Math.round(100 * agent.beyond)} % of it (γ to the power ${agent.longest}) cannot be seen in the measured sum.` : "";
  const told = (number) => (number === null ? "none" : number.toFixed(2)), known = data.knowledge;
  const signsOf = (signs) => `rank correlation ${told(signs.rank)}, slope ${told(signs.slope)}, error ${told(signs.error)}`;
  if (known) at("knowledge").textContent = `Asked during training, last at frame ${known.frame.toLocaleString("en")}: ${Object.entries(known.kinds).map(([kind, signs]) => `${known.words[kind]}: ${signsOf(signs)}${signs.corrected.error === null ? "" : `, corrected ${signsOf(signs.corrected)}`}`).join("; ")}.`;
  at("limits").textContent = `Discounted returns (γ = ${agent.discount}) are what a critic values.${beyond}`;
}

function controls() {
  const said = { corrected: "mean of all, corrected", mean: "mean of all critics" };
  const options = [...(slice.corrected ? ["corrected"] : []), "mean", ...slice.predicted.keys()].map((critic) => {
    const option = html("option", said[critic] ?? `critic ${critic}`);
    option.value = critic;
    return option;
  });
  at("critic").replaceChildren(...options);
  for (const name of ["critic", "returns"]) at(name).addEventListener("input", () => { choice[name] = at(name).value; draw(); });
  at("same").addEventListener("input", () => { choice.same = at("same").checked; draw(); });
}

function choose(cell) {
  choice.cell = cell;
  for (const mark of document.querySelectorAll("[data-cell]")) mark.classList.toggle("chosen", Number(mark.dataset.cell) === cell);
  if (cell === null) return;
  const [x, y] = [places[cell % places.length], places[Math.floor(cell / places.length)]];
  const all = slice.predicted.map((row) => row[cell]);
  at("readout").textContent = `x ${short(x)}, y ${short(y)}: predicted ${short(predictedOf(slice)[cell])} (critics ${short(Math.min(...all))} to ${short(Math.max(...all))}), measured ${short(slice.discounted[cell])} ± ${short(slice.deviation.discounted[cell])}, undiscounted ${short(slice.plain[cell])}`;
}

function heatmap(title, values, [low, high]) {
  const size = 320, left = 34, top = 6, side = 270, cell = side / places.length;
  const svg = make("svg", { viewBox: `0 0 ${size} 348` });
  const marks = [];
  values.forEach((value, place) => {
    const [column, row] = [place % places.length, Math.floor(place / places.length)];
    const at = { x: left + column * cell, y: top + (places.length - 1 - row) * cell, width: cell + 0.3, height: cell + 0.3 };
    const box = svg.appendChild(make("rect", { ...at, fill: shade((value - low) / (high - low || 1)) }));
    box.addEventListener("pointerenter", () => choose(place));
    box.addEventListener("click", () => choose(place));
    marks.push(make("rect", { ...at, fill: "none", "pointer-events": "none", "data-cell": place }));
  });
  svg.append(...marks);
  const centre = (value) => (places.indexOf(value) + 0.5) * cell;
  [[0, 0], [1, 0], [0, 1]].forEach(([x, y], corner) => {
    svg.append(make("text", { class: "mark", x: left + centre(x), y: top + side - centre(y) + 4, "text-anchor": "middle", "pointer-events": "none" }, "abc"[corner]));
  });
  for (const tick of [-0.5, 0, 0.5, 1, 1.5]) {
    svg.append(make("text", { x: left + centre(tick), y: top + side + 15, "text-anchor": "middle" }, short(tick)));
    svg.append(make("text", { x: left - 5, y: top + side - centre(tick) + 4, "text-anchor": "end" }, short(tick)));
  }
  svg.append(make("text", { x: left + side / 2, y: top + side + 30, "text-anchor": "middle" }, "x, from a to b (y upward: from a to c)"));
  for (let step = 0; step < 40; step += 1) svg.append(make("rect", { x: left + 55 + step * 4, y: 320, width: 4.3, height: 9, fill: shade(step / 39) }));
  svg.append(make("text", { x: left + 49, y: 329, "text-anchor": "end" }, short(low)), make("text", { x: left + 221, y: 329 }, short(high)));
  return figure(title, svg);
}

function scatter(predicted, measured) {
  const both = extent([...predicted, ...(choice.returns === "discounted" ? measured : predicted)]);
  const yRange = choice.returns === "discounted" ? both : extent(measured);
  const { svg, x, y } = axes(360, 348, both, yRange, "predicted", "measured");
  if (choice.returns === "discounted") svg.append(make("line", { class: "axis", x1: x(both[0]), y1: y(both[0]), x2: x(both[1]), y2: y(both[1]), "stroke-dasharray": "4 4" }));
  const corners = [[0, 0], [1, 0], [0, 1]].map(([u, v]) => places.indexOf(v) * places.length + places.indexOf(u));
  const marks = [];
  predicted.forEach((value, place) => {
    const corner = corners.indexOf(place);
    const spot = { cx: x(value), cy: y(measured[place]) };
    const dot = svg.appendChild(make("circle", { ...spot, r: corner >= 0 ? 6 : 3.5, fill: corner >= 0 ? "var(--warm)" : "var(--green)", opacity: corner >= 0 ? 1 : 0.65 }));
    dot.addEventListener("pointerenter", () => choose(place));
    dot.addEventListener("click", () => choose(place));
    if (corner >= 0) svg.append(make("text", { x: x(value) + 8, y: y(measured[place]) + 4 }, "abc"[corner]));
    marks.push(make("circle", { ...spot, r: 7, fill: "none", "pointer-events": "none", "data-cell": place }));
  });
  svg.append(...marks);
  const rank = choice.returns === "discounted" ? agreementOf(slice).rank : agreementOf(slice).rank_plain;
  return figure(`Predicted against measured: rank correlation ${rank === null ? "none" : rank.toFixed(2)}`, svg);
}

function agreements() {
  const table = html("table");
  const first = table.appendChild(html("tr"));
  first.append(...["", "rank correlation", "with undiscounted", "bias", "error", "slope"].map((name) => html("th", name)));
  const row = (name, found, chosen) => {
    const line = html("tr", "", chosen ? "chosen" : "");
    const two = (value) => (value === null ? "–" : value.toFixed(2));
    line.append(...[name, two(found.rank), two(found.rank_plain), short(found.bias), short(found.error), two(found.slope)].map((text) => html("td", text)));
    return line;
  };
  if (slice.corrected) table.append(row("mean of all, corrected", slice.agreement.corrected, choice.critic === "corrected"));
  table.append(row("mean of all critics", slice.agreement.mean, choice.critic === "mean"));
  slice.agreement.critics.forEach((found, critic) => table.append(row(`critic ${critic}`, found, choice.critic === String(critic))));
  at("agreements").replaceChildren(table);
}

function curves() {
  const { line } = data, measured = line[choice.returns], off = line.deviation[choice.returns];
  const same = choice.returns === "discounted";
  const reach = measured.flatMap((value, place) => [value - off[place], value + off[place]]);
  const range = extent([...line.predicted.flat(), ...(line.corrected ?? []), ...(same ? reach : [])]);
  const { svg, x, y } = axes(760, 340, [-0.5, 1.5], range, `from ${names[0]} (0) to ${names[1]} (1)`, "");
  const spot = extent(reach);
  const level = same ? y : (value) => y(range[0] + ((value - spot[0]) / (spot[1] - spot[0])) * (range[1] - range[0]));
  for (const actor of [0, 1]) svg.append(make("line", { class: "axis", x1: x(actor), x2: x(actor), y1: 10, y2: 300, "stroke-dasharray": "2 4" }));
  line.predicted.forEach((values, critic) => {
    const chosen = choice.critic === String(critic);
    svg.append(make("path", { d: path(line.x, values, x, y), fill: "none", stroke: "var(--green)", "stroke-width": chosen ? 3 : 1.2, opacity: chosen ? 1 : 0.6 }));
  });
  if (["mean", "corrected"].includes(choice.critic)) svg.append(make("path", { d: path(line.x, predictedOf(line), x, y), fill: "none", stroke: "var(--green)", "stroke-width": 3 }));
  line.x.forEach((value, place) => {
    svg.append(make("line", { x1: x(value), x2: x(value), y1: level(measured[place] - off[place]), y2: level(measured[place] + off[place]), stroke: "var(--warm)" }));
    svg.append(make("circle", { cx: x(value), cy: level(measured[place]), r: 4, fill: "var(--warm)" }));
  });
  at("line").replaceChildren(figure(`Green: one curve per critic, strong the ${{ mean: "mean", corrected: "mean, corrected" }[choice.critic] ?? "chosen one"}. Orange: measured ${same ? "discounted" : "undiscounted, on a scale of their own"}, ± deviation between episodes`, svg));
}

// Coverage and Delta do not depend on what is chosen above: they are drawn once.
function trust() {
  const { trust } = data;
  if (!trust) {
    at("reach").textContent = "Not known: there is no replay beside these networks.";
    return;
  }
  const outside = Math.max(...trust.outside);
  at("reach").textContent = `From ${trust.rows} transitions of the replay and its newest states. Coverage C of an actor, over its least: 1 where the data are as if they were its own. Delta: by how much errors of the critic can turn its gradient, from slopes at ${trust.states} states. At most ${(100 * outside).toFixed(1)} % of the features of an actor lie outside of the data.`;
  const bars = (title, values, level) => {
    const { svg, x, y } = axes(360, 260, [-0.5, values.length - 0.5], [0, Math.max(...values, level) * 1.05 || 1], "actor", "");
    values.forEach((value, actor) => {
      const bar = svg.appendChild(make("rect", { x: x(actor - 0.35), y: y(value), width: x(0.7) - x(0), height: y(0) - y(value), fill: PALETTE[actor % PALETTE.length] }));
      bar.append(make("title", {}, `actor ${actor}: ${short(value)}`));
    });
    if (level) svg.append(make("line", { class: "axis", x1: x(-0.5), x2: x(values.length - 0.5), y1: y(level), y2: y(level), "stroke-dasharray": "4 4" }));
    return figure(title, svg);
  };
  at("trust").replaceChildren(bars("Coverage C over its least", trust.trust, 1), bars("Delta", trust.drift, 0));
}

function draw() {
  const [predicted, measured] = [predictedOf(slice), slice[choice.returns]];
  const range = (values) => [Math.min(...values), Math.max(...values)];
  const together = choice.same && choice.returns === "discounted" ? range([...predicted, ...measured]) : null;
  at("maps").replaceChildren(
    heatmap("Predicted", predicted, together ?? range(predicted)),
    heatmap(choice.returns === "discounted" ? "Measured, discounted" : "Measured, undiscounted", measured, together ?? range(measured)),
    scatter(predicted, measured),
  );
  const [told, found] = [range(predicted), range(slice.discounted)].map(([low, high]) => `${short(low)} to ${short(high)}`);
  at("verdict").textContent = `Over these ${predicted.length} policies the predictions range from ${told}, the measured discounted returns from ${found}.`;
  agreements();
  curves();
  embedding();
  probes();
  if (choice.cell !== null) choose(choice.cell);
}

function embedding() {
  const { frames, critics } = data.embedding;
  const found = critics[critics.length === 1 ? 0 : one()];
  const flat = found.points.flat();
  const { svg, x, y } = axes(420, 360, extent(flat.map((point) => point[0])), extent(flat.map((point) => point[1])), `first component, ${Math.round(100 * found.shares[0])} % of the variance`, `second, ${Math.round(100 * found.shares[1])} %`);
  for (let actor = 0; actor < found.points[0].length; actor += 1) {
    const own = found.points.map((points) => points[actor]), colour = PALETTE[actor % PALETTE.length];
    svg.append(make("path", { d: path(own.map((point) => point[0]), own.map((point) => point[1]), x, y), fill: "none", stroke: colour, opacity: 0.6 }));
    own.forEach((point, time) => svg.append(make("circle", { cx: x(point[0]), cy: y(point[1]), r: time === own.length - 1 ? 6 : 3, fill: colour })));
    const last = own[own.length - 1];
    svg.append(make("text", { x: x(last[0]) + 8, y: y(last[1]) + 4 }, String(actor)));
  }
  const whose = critics.length === 1 ? "the shared encoder" : `the encoder of critic ${one()}`;
  const when = frames.length === 1 ? "Only one checkpoint is kept, so there is no path to draw; train with --keep 10 to see one." : `Lines lead from the checkpoint at frame ${frames[0].toLocaleString("en")} to the newest (large dots), ${frames.length} kept.`;
  at("embedding").replaceChildren(figure(`Codes of the actors by ${whose}`, svg), html("p", when, "quiet"));
}

function probes() {
  const critic = one(), { sensitivity, top } = data.probes[critic];
  const total = sensitivity.reduce((sum, value) => sum + value, 0) || 1;
  const { svg, x, y } = axes(420, 360, [0, sensitivity.length], [0, Math.max(...sensitivity, 1e-12) * 1.05], "probe states, the most telling first", "length of the gradient");
  const width = Math.max((x(1) - x(0)) * 0.85, 0.5);
  sensitivity.forEach((value, place) => svg.append(make("rect", { x: x(place), y: y(value), width, height: Math.max(y(0) - y(value), 0), fill: "var(--green)" })));
  const half = sensitivity.reduce((found, value) => (found.sum * 2 < total ? { sum: found.sum + value, count: found.count + 1 } : found), { sum: 0, count: 0 });
  at("probes").replaceChildren(figure(`Critic ${critic}: ${half.count} of ${sensitivity.length} probe states ${half.count === 1 ? "holds" : "hold"} half of it`, svg));
  probeTable(top);
}

// A column for each of the most telling probe states, a row for each number of its observation and of the actors' actions.
function probeTable(top) {
  const { observation_names, action_names, action_low, action_high } = data.names, table = html("table");
  const row = (kind, name, cells) => {
    const line = table.appendChild(html("tr"));
    line.append(html("th", name), ...cells.map((cell) => html(kind, cell)));
  };
  row("th", "probe state", top.map(({ probe }) => String(probe)));
  row("td", "share", top.map(({ share }) => `${(100 * share).toFixed(1)} %`));
  observation_names.slice(0, MOST_ROWS).forEach((name, place) => row("td", name, top.map(({ state }) => short(state[place]))));
  if (observation_names.length > MOST_ROWS) row("td", `and ${observation_names.length - MOST_ROWS} more`, top.map(() => ""));
  agent.corners.forEach((actor, corner) => action_names.forEach((name, place) => {
    const bounds = `${short(action_low[place])} to ${short(action_high[place])}`;
    row("td", `${name} of actor ${actor} (${bounds})`, top.map(({ actions }) => short(actions[corner][place])));
  }));
  at("states").replaceChildren(table);
}

head();
controls();
trust();
draw();
