// The player: which episode, which moment, and all that the page shows of it.

const data = JSON.parse(document.getElementById("data").textContent);
const byId = (id) => document.getElementById(id);
const SPEEDS = [0.1, 0.25, 0.5, 1, 2, 4], ACTIONS_PER_SECOND = 30;
const wish = new URLSearchParams(location.hash.slice(1));

function report(message) {
  byId("trouble").hidden = false;
  byId("trouble").textContent = message;
}
window.addEventListener("error", (event) => {
  document.documentElement.dataset.errors = event.message;
  report(`This page failed: ${event.message}`);
});

class Player {
  constructor() {
    Object.assign(this, { time: 0, playing: false, speed: 1, last: null, slow: 0, frames: 0, told: 0, asked: false });
    this.describe();
    this.fillControls();
    if (data.scene) this.openScene();
    else byId("view").hidden = byId("following").hidden = byId("reset").hidden = true;
    const chosen = data.episodes.findIndex((each) => String(each.actor) === wish.get("actor"));
    this.choose(Math.max(0, chosen));
    this.listen();
    if (wish.has("action")) this.goTo(this.episode.times[Math.min(this.episode.steps, Math.max(0, Number(wish.get("action")) || 0))]);
    else if (!wish.has("measure")) this.setPlaying(!matchMedia("(prefers-reduced-motion: reduce)").matches);
  }

  describe() {
    byId("title").textContent = data.task;
    const when = `${data.best ? "best" : "last"} actors, frame ${data.frame.toLocaleString("en")}`;
    byId("facts").textContent = `${data.recipe} · seed ${data.seed} · ${when} · episode seed ${data.episode_seed}`;
    byId("absent").hidden = Boolean(data.scene);
    byId("absent").textContent = "This task has no geometry to draw: it is not made with MuJoCo. Its traces tell what happened.";
    const notes = [...data.notes], some = data.episodes[0], cut = data.episodes.some((each) => each.end !== "task");
    if (some.value) notes.push(
      `Value is Q(π, s, π(s)) of the actor's critic${some.low !== some.high ? "; the shade spans all critics" : ""}.`);
    notes.push(`Measured is the discounted return (γ = ${data.discount}) from each state to the end of the episode` +
      `${cut ? ", dashed where more than a tenth of its weight lies beyond the end" : ""}.`);
    notes.push("Actions and observations have the task's own units.");
    if (data.error) notes.push(`Poses in this file are rounded by at most ${(data.error.position * 1000).toPrecision(2)} mm ` +
      `and ${((data.error.rotation * 180) / Math.PI).toPrecision(2)}°.`);
    byId("notes").append(...notes.map((text) => Object.assign(document.createElement("li"), { textContent: text })));
  }

  fillControls() {
    const option = (value, textContent) => Object.assign(document.createElement("option"), { value, textContent });
    byId("speed").append(...SPEEDS.map((speed) => option(speed, `${speed}×`)));
    byId("speed").value = "1";
    byId("actor").append(...data.episodes.map((each, index) => option(index, `${each.actor} (return ${brief(each.return)})`)));
    this.readings = {};
    for (const name of ["time", "action", "reward", "return so far", "value", "measured"]) {
      const dt = Object.assign(document.createElement("dt"), { textContent: name }), dd = document.createElement("dd");
      const group = document.createElement("div");
      group.append(dt, dd);
      byId("readout").append(group);
      this.readings[name] = dd;
    }
    this.readings.value.parentElement.hidden = !data.episodes[0].value;
    this.readings.time.parentElement.hidden = !data.episodes[0].seconds;
  }

  openScene() {
    const canvas = byId("picture");
    this.camera = new Camera(canvas, data.scene.radius, () => this.ask());
    this.drawing = new Drawing(canvas, data.scene);
    if (!this.drawing.gl) {
      this.drawing = null;
      byId("view").hidden = byId("following").hidden = byId("reset").hidden = true;
      report("This browser has no WebGL 2, so the episode cannot be drawn in 3D. Its traces are below. In most browsers " +
        "hardware acceleration can be switched on in the settings.");
      return;
    }
    canvas.addEventListener("webglcontextlost", (event) => event.preventDefault());
    canvas.addEventListener("webglcontextrestored", () => { this.drawing.build(); this.ask(); });
    canvas.addEventListener("pointerdown", () => byId("hint").classList.add("gone"));
  }

  choose(index) {
    const packed = data.episodes[index], episode = { ...packed };
    for (const name of ["times", "rewards", "measured", "value", "low", "high", "centre"])
      if (packed[name]) episode[name] = floatsOf(packed[name]);
    if (packed.poses && this.drawing) episode.track = unpackPoses(packed.poses);
    let sum = 0;
    episode.sums = Float64Array.from(episode.rewards, (reward) => (sum += reward));
    this.episode = episode;
    this.end = episode.times[episode.steps];
    byId("scrub").max = String(this.end);
    byId("actor").value = String(index);
    if (this.drawing) this.aim();
    this.makeTraces(packed);
    this.goTo(Math.min(this.time, this.end));
  }

  // What the camera looks at: the body's path, made smooth, or all of it where the body stays near.
  aim() {
    const { centre, steps } = this.episode, radius = data.scene.radius, low = [0, 0, 0], high = [0, 0, 0];
    for (let k = 0; k < 3; k++) {
      const path = Array.from({ length: steps + 1 }, (_, i) => centre[3 * i + k]);
      [low[k], high[k]] = [Math.min(...path), Math.max(...path)];
    }
    const travel = Math.max(...minus(high, low));
    if (this.resting === undefined) {
      this.camera.follow = byId("follow").checked = travel > 1.5 * radius;
      if (!this.camera.follow) this.camera.radius = radius + travel / 2;
      this.camera.reset();
    }
    this.resting = low.map((each, k) => (each + high[k]) / 2);
    const half = Math.max(1, Math.round((0.25 * steps) / Math.max(this.seconds(this.end), 1e-9)));
    this.path = new Float32Array(centre.length);
    for (let k = 0; k < 3; k++)
      for (let i = 0; i <= steps; i++) {
        const from = Math.max(0, i - half), to = Math.min(steps, i + half);
        let sum = 0;
        for (let j = from; j <= to; j++) sum += centre[3 * j + k];
        this.path[3 * i + k] = sum / (to - from + 1);
      }
  }

  makeTraces(packed) {
    const { times, rewards, measured, value, low, high, whole, steps } = this.episode, room = byId("traces");
    room.replaceChildren();
    const seek = (time) => { this.setPlaying(false); this.goTo(time); };
    const { observation_names: seen_names, action_names, action_low, action_high } = data;
    const few = (value) => String(Number(value.toPrecision(3))), span = (k) => `${few(action_low[k])} to ${few(action_high[k])}`;
    const actions = floatsOf(packed.actions), { low: from, size, data: places } = packed.observations;
    const seen_numbers = unbox(from, size, places), shown = from.length;
    const line = (name, k, values, told) => ({ name, values, told, colour: COLOURS[k % COLOURS.length] });
    const acted = action_names.map((name, k) =>
      line(name, k, actions.subarray(k * steps, (k + 1) * steps), `${name}, ${span(k)}`));
    const observed = seen_names.slice(0, shown).map((name, k) => line(name, k, Float32Array.from({ length: steps + 1 }, (_, i) => seen_numbers[i * shown + k])));
    const same = (list) => list.every((each) => each === list[0]);
    const bounds = same(action_low) && same(action_high) ? `, ${span(0)}` : "";
    const part = shown < seen_names.length ? `, the first ${shown} of ${seen_names.length}` : "";
    const left = this.widthOfNames([acted, observed]);
    const trace = (title, series) => this.traces.push(new Trace(room, title, times, series, seek, left));
    this.traces = [];
    trace("reward of each action", [{ values: rewards, colour: "--third" }]);
    const seen = { name: "measured return", values: measured, colour: "--second", dashedFrom: whole };
    const said = value ? [{ name: "critic's value", values: value, colour: "--first", band: [low, high] }] : [];
    trace(value ? "value" : "discounted return to go", [...said, seen]);
    trace(`actions${bounds}`, acted);
    trace(`observations${part}`, observed);
    this.drawTraces();
  }

  // Pixels for the longest name that stands beside a row, and its reading: the same for all plots, so that moments align.
  widthOfNames(all) {
    const names = all.filter((series) => series.length > MOST_LINES).flat().map((each) => each.name);
    const longest = Math.max(0, ...names.map((name) => name.length)), most = 0.4 * byId("traces").clientWidth;
    return names.length ? Math.round(Math.min(6.2 * longest + 60, most)) : 44;
  }

  drawTraces() {
    for (const trace of this.traces) { trace.draw(); trace.point(this.time); }
  }

  listen() {
    byId("play").addEventListener("click", () => this.setPlaying(!this.playing));
    byId("back").addEventListener("click", () => this.step(-1));
    byId("forth").addEventListener("click", () => this.step(1));
    byId("scrub").addEventListener("input", (event) => { this.setPlaying(false); this.goTo(Number(event.target.value)); });
    byId("speed").addEventListener("change", (event) => { this.speed = Number(event.target.value); });
    byId("actor").addEventListener("change", (event) => this.choose(Number(event.target.value)));
    byId("follow").addEventListener("change", (event) => this.setFollow(event.target.checked));
    byId("reset").addEventListener("click", () => this.camera.reset());
    document.addEventListener("keydown", (event) => this.key(event));
    new ResizeObserver(() => { this.drawTraces(); this.ask(); }).observe(document.body);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.drawTraces());
  }

  key(event) {
    const { tagName, type } = event.target, typing = tagName === "SELECT" || (tagName === "INPUT" && type !== "checkbox");
    const own = tagName === "BUTTON" && event.key === " ";  // presses that button
    if (event.ctrlKey || event.metaKey || event.altKey || own || (typing && event.key !== " ")) return;
    const far = event.shiftKey ? 10 : 1, faster = (by) => {
      const index = Math.max(0, Math.min(SPEEDS.length - 1, SPEEDS.indexOf(this.speed) + by));
      byId("speed").value = String(this.speed = SPEEDS[index]);
    };
    const acts = {
      " ": () => this.setPlaying(!this.playing), ArrowLeft: () => this.step(-far), ArrowRight: () => this.step(far),
      "[": () => faster(-1), "]": () => faster(1), r: () => this.camera?.reset(),
      f: () => this.drawing && this.setFollow(!this.camera.follow),
    };
    const index = /^[0-9]$/.test(event.key) ? data.episodes.findIndex((each) => String(each.actor) === event.key) : -1;
    if (index >= 0) this.choose(index);
    else if (acts[event.key]) acts[event.key]();
    else return;
    event.preventDefault();
  }

  setFollow(follow) {
    byId("follow").checked = this.camera.follow = follow;
    this.ask();
  }

  setPlaying(playing) {
    if (playing && this.time >= this.end) this.time = 0;
    Object.assign(this, { playing, last: null });
    byId("play").textContent = playing ? "Pause" : "Play";
    this.ask();
  }

  step(by) {
    this.setPlaying(false);
    const state = Math.max(0, Math.min(this.episode.steps, this.locate().state + by));
    this.goTo(this.episode.times[state]);
  }

  goTo(time) {
    this.time = Math.max(0, Math.min(this.end, time));
    this.ask();
  }

  seconds(time) {
    return this.episode.seconds ? time : time / ACTIONS_PER_SECOND;
  }

  // The state at or before this moment, and the share of the way to the next one.
  locate() {
    const { times, steps } = this.episode;
    let low = 0, high = steps;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (times[middle] <= this.time + 1e-6) low = middle; else high = middle - 1;
    }
    const share = low < steps ? (this.time - times[low]) / (times[low + 1] - times[low]) : 0;
    return { state: low, share: Math.max(0, Math.min(1, share)) };
  }

  ask() {
    if (this.asked || !this.episode) return;
    this.asked = true;
    requestAnimationFrame((now) => { this.asked = false; this.frame(now); });
  }

  frame(now) {
    if (this.playing) {
      const passed = this.last === null ? 0 : (now - this.last) / 1000;
      this.last = now;
      this.time += Math.min(passed, 0.25) * this.speed * (this.episode.seconds ? 1 : ACTIONS_PER_SECOND);
      this.adapt(passed);
      if (this.time >= this.end) { this.time = this.end; this.setPlaying(false); }
    }
    this.show();
    if (this.playing) this.ask();
  }

  // A machine that cannot keep up gets a picture with fewer pixels, and at last without shadows.
  adapt(passed) {
    if (!this.drawing || passed === 0) return;
    this.slow += passed;
    if (++this.frames < 15) return;
    if (this.slow / this.frames > 1 / 36) {
      this.drawing.shadowy = this.drawing.shadowy && this.drawing.sharpness > 0.4;
      this.drawing.sharpness = Math.max(0.4, this.drawing.sharpness * 0.8);
    }
    this.slow = this.frames = 0;
  }

  show() {
    const { state, share } = this.locate();
    if (this.drawing) {
      const at = (k) => this.path[3 * state + k] * (1 - share) + (share ? this.path[3 * state + 3 + k] * share : 0);
      const centre = this.camera.follow ? [at(0), at(1), at(2)] : this.resting;
      const still = !this.playing && !this.camera.pointers.size && !wish.has("measure");
      this.drawing.draw(this.episode.track, state, share, this.camera.view(centre, this.drawing.fit(still)));
    }
    for (const trace of this.traces) trace.point(this.time);
    const now = performance.now();
    if (this.playing && now - this.told < 80) return;  // nobody reads faster, and text is slow to draw
    this.told = now;
    this.tell(state);
  }

  tell(state) {
    const { rewards, sums, value, measured, steps } = this.episode;
    const action = Math.min(state, steps - 1), tell = (name, text) => { this.readings[name].textContent = text; };
    byId("scrub").value = String(this.time);
    tell("time", `${this.time.toFixed(2)} s`);
    tell("action", `${state.toLocaleString("en")} of ${steps.toLocaleString("en")}`);
    tell("reward", brief(rewards[action]));
    tell("return so far", brief(state ? sums[state - 1] : 0));
    if (value) tell("value", brief(value[state]));
    tell("measured", state < steps ? brief(measured[state]) : "end");
    for (const trace of this.traces) trace.tell(state);
  }
}

// For tests: draws 60 moments spread over the episode, each to its end, and writes frames per second into the page.
function measure(player) {
  const count = 60, pixel = new Uint8Array(4), gl = player.drawing?.gl, durations = [];
  for (let i = -10; i < count; i++) {
    const start = performance.now();
    player.time = (player.end * Math.max(0, i)) / count;
    player.show();
    gl?.readPixels(0, 0, 1, 1, gl.RGBA, gl.UNSIGNED_BYTE, pixel);
    const passed = performance.now() - start;
    player.adapt(passed / 1000);
    if (i >= 0) durations.push(passed);
  }
  const total = durations.reduce((sum, each) => sum + each, 0);
  Object.assign(document.documentElement.dataset, {
    fps: (1000 * count / total).toFixed(1), sharpness: player.drawing?.sharpness.toFixed(2) ?? "none",
    drawn: player.drawing ? `${player.drawing.canvas.width}x${player.drawing.canvas.height}` : "none",
  });
}

const player = new Player();
if (wish.has("measure")) measure(player);
