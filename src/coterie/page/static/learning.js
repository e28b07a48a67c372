// The first view: the network as it learns, the curve beside it, and time beneath.
import { called, fill, h, ink, kind, number, ramp, select } from "./dom.js";
import { bars, Chart, histogram, lines } from "./charts.js";
import { NetworkView } from "./network.js";
import { NodePanel } from "./node.js";
import { facts } from "./tables.js";

const STEP = 420; // milliseconds that a round is shown

export class Learning {
  constructor(page) {
    this.page = page;
    this.network = new NetworkView({ chosen: (node) => this.choose(node) });
    this.tools = h("div", { class: "tools" });
    this.legend = h("div", { class: "legend" });
    this.curve = new Chart("curve", 300);
    this.spread = new Chart("nodes", 170);
    this.side = h("div");
    this.panel = new NodePanel(page, (node) => this.choose(node));
    this.happened = h("ul", { class: "happened" });
    this.play = h("button", { class: "plain", onclick: () => this.toggle(), "aria-label": "play" }, "▶");
    this.round = h("span", { class: "round" });
    this.range = h("input", { type: "range", min: 0, value: 0, "aria-label": "round", oninput: () => this.go(Number(this.range.value)) });
    this.marks = h("div", { class: "marks", "aria-hidden": "true" });
    this.follow = h("button", { class: "quiet", onclick: () => this.end() }, "newest");
    const time = h("div", { class: "time" }, this.play, this.round, h("div", { class: "track" }, this.marks, this.range), this.follow);
    this.place = h("div", {}, this.tools, h("div", { class: "learning" },
      h("div", {}, this.network.place, this.legend, time), this.side));
    this.at = 0;
    this.atEnd = true;
    this.node = null;
    this.flow = new Map();
  }

  get state() { return this.page.state; }

  async show() {
    const { source, overview } = this.page;
    const jobs = overview.jobs.filter((job) => !source.has || source.has(job.id));
    if (!jobs.length) { fill(this.side, h("p", { class: "faint" }, "No job has begun yet.")); return; }
    const best = overview.table?.rows[0]?.[0]; // as the first sentence has it
    const preferred = jobs.find((job) => job.state === "running") ?? jobs.find((job) => job.nodes > 1 && job.method === best)
      ?? jobs.find((job) => job.nodes > 1 && job.round > 0) ?? jobs[0];
    if (!jobs.some((job) => job.id === this.state.job)) this.state.job = preferred.id;
    const id = this.state.job;
    const view = await source.job(id);
    const kinds = this.#kinds(view), wanted = [this.state.colour, "test_accuracy", view.columns[0], ...Object.keys(kinds)];
    this.colour = wanted.find((name) => view.columns.includes(name) || kinds[name]) ?? ""; // nothing may be known yet
    if (this.job !== id) this.node = null;
    if (this.job !== id || overview.live) this.flow.clear(); // peers may still tell of this round
    [this.job, this.view] = [id, view];
    this.matrix = view.columns.includes(this.colour) ? await source.matrix(id, this.colour) : { rounds: view.rounds, values: [] };
    this.#drawTools(jobs);
    this.range.max = Math.max(this.matrix.rounds.length - 1, 0);
    if (this.atEnd) this.at = Math.max(this.matrix.rounds.length - 1, 0);
    this.at = Math.min(this.at, Math.max(this.matrix.rounds.length - 1, 0));
    this.#drawMarks();
    fill(this.side, this.node === null
      ? [this.#head("How it goes", this.curve), this.curve.box, this.facts = h("div"), this.spread.box, h("h2", {}, "What happened"), this.happened]
      : this.panel.place);
    if (this.node !== null) await this.panel.show(id, view, this.node);
    await this.draw();
  }

  #head(text, chart) {
    return h("div", { class: "panelhead" }, h("h2", {}, text), h("span", { class: "room" }), chart.buttons(["png", "svg"]));
  }

  // What a node is coloured by that does not change with time.
  #kinds(view) {
    const found = {};
    if (view.samples) found.samples = { values: view.samples };
    if (view.architectures && new Set(view.architectures).size > 1) {
      const names = [...new Set(view.architectures)];
      found.architecture = { values: view.architectures.map((name) => names.indexOf(name)), names };
    }
    if (view.labels) {
      const top = view.labels.map((line) => line.indexOf(Math.max(...line)));
      found["main class"] = { values: top, names: view.labels[0].map((_, i) => `class ${i}`) };
      const share = (line, count) => count / (line.reduce((a, b) => a + b, 0) || 1);
      found["share of its main class"] = { values: view.labels.map((line) => share(line, Math.max(...line))) };
      for (let k = 0; k < Math.min(view.labels[0].length, 20); k++) found[`share of class ${k}`] = { values: view.labels.map((line) => share(line, line[k])) };
    }
    if (view.progress?.length) found["round it has come to"] = { values: view.progress };
    if (view.degrees) found.degree = { values: view.degrees };
    return found;
  }

  #drawTools(jobs) {
    const { state, page } = this;
    const labels = [...new Set(jobs.map((job) => job.method))];
    const mine = jobs.find((job) => job.id === state.job);
    const pick = (method, seed) => {
      const found = jobs.find((job) => job.method === method && job.seed === Number(seed)) ?? jobs.find((job) => job.method === method);
      state.job = found.id;
      page.refresh();
    };
    const columns = [...this.view.columns.map((name) => [name, called(name)]), ...Object.keys(this.#kinds(this.view)).map((name) => [name, name])];
    const again = (key) => (value) => { state[key] = value; page.refresh(); };
    fill(this.tools,
      select("method", labels.map((name) => [name, name]), mine.method, (name) => pick(name, mine.seed)),
      select("seed", jobs.filter((job) => job.method === mine.method).map((job) => [String(job.seed), String(job.seed)]), String(mine.seed), (seed) => pick(mine.method, seed)),
      select("colour", columns, this.colour, again("colour")),
      select("layout", [["force", "forces"], ["ring", "ring"], ["grid", "grid"]], state.layout, again("layout")),
      select("links", [["plain", "plain"], ["bytes", "by bytes"], ["age", "by age"], ["none", "hidden"]], state.flow, again("flow")),
      this.view.sampled ? h("span", { class: "note" }, "Only some of the links are drawn.") : null,
      this.view.trouble ? h("span", { class: "note warn" }, this.view.trouble) : null);
  }

  #drawMarks() {
    const rounds = this.matrix.rounds, last = Math.max(rounds.length - 1, 1);
    const where = (round) => {
      let i = rounds.findLastIndex((each) => each <= round);
      if (i < 0) i = 0;
      const next = rounds[i + 1];
      return (i + (next === undefined ? 0 : (round - rounds[i]) / (next - rounds[i]))) / last;
    };
    const within = (mark) => mark.round >= (rounds[0] ?? 0) && mark.round <= rounds.at(-1);
    const roles = this.#roleMarks().filter(within), step = Math.ceil(roles.length / 150);
    const shown = [...roles.filter((_, i) => i % step === 0), ...this.view.marks.filter(within).slice(-300)];
    fill(this.marks, shown.map((mark) => h("i", { class: mark.kind, title: `round ${mark.round}: ${mark.text}`, style: { left: `${100 * where(mark.round)}%` } })));
  }

  #roleMarks() {
    const named = (node) => this.view.names?.[node] ?? `node ${node}`;
    return Object.entries(this.view.roles ?? {}).flatMap(([role, told]) => Object.entries(told).map(([round, nodes]) =>
      ({ kind: "role", round: Number(round), time: 0, text: `${role}: ${nodes.slice(0, 6).map(named).join(", ")}${nodes.length > 6 ? ` and ${nodes.length - 6} more` : ""}` })));
  }

  choose(node) {
    this.node = node;
    this.network.selected = node;
    this.show();
  }

  go(at) {
    this.at = at;
    this.atEnd = at >= this.matrix.rounds.length - 1;
    this.draw();
  }

  step(by) { this.go(Math.min(Math.max(this.at + by, 0), this.matrix.rounds.length - 1)); }
  end() { this.atEnd = true; this.stop(); this.go(this.matrix.rounds.length - 1); }
  stop() { clearInterval(this.timer); this.timer = null; this.play.textContent = "▶"; this.play.setAttribute("aria-label", "play"); }

  toggle() {
    if (this.timer) return this.stop();
    if (this.at >= this.matrix.rounds.length - 1) this.go(0);
    this.play.textContent = "❚❚";
    this.play.setAttribute("aria-label", "pause");
    this.timer = setInterval(() => (this.at >= this.matrix.rounds.length - 1 ? this.stop() : this.step(1)), STEP);
    return undefined;
  }

  async draw() {
    const { view, state, network } = this;
    const round = this.matrix.rounds[this.at] ?? 0;
    this.range.value = this.at;
    this.range.setAttribute("aria-valuetext", `round ${round}`);
    this.round.textContent = `round ${round}`;
    this.round.dataset.round = round;
    network.setNetwork(state.flow === "none" ? { ...view, links: { sources: [], targets: [], weights: [] } } : view, state.layout, this.#dims(), this.job);
    const fixed = this.matrix.values.length ? null : this.#kinds(view)[this.colour];
    const values = fixed ? fixed.values : this.matrix.values[this.at] ?? [];
    const domain = this.#domain(fixed ? [fixed.values] : this.matrix.values);
    const [latest, late] = fixed ? [values, new Map()] : this.#latest(values);
    network.setValues(latest, domain, called(this.colour), fixed?.names ?? null);
    network.late = late;
    network.draw();
    network.canvas.dataset.layout = state.layout;
    if (this.node === null) this.#drawSide(values, round);
    else this.panel.at(round);
    const links = await this.#links(round);
    network.marked = { away: new Set(links.away), down: links.down ?? [], roles: this.#roles(round) };
    network.flow = this.#flow(links);
    this.#drawLegend(domain, fixed?.names);
    network.draw();
    this.network.canvas.dataset.drawn = `${this.job} ${round}`;
  }

  // Peers that have not come to this round yet are shown as they were last.
  #latest(values) {
    const { progress } = this.view, { rounds, values: table } = this.matrix, late = new Map();
    if (!progress?.length) return [values, late];
    const latest = progress.map((reached, i) => {
      if ((values[i] ?? null) !== null || reached >= rounds[this.at]) return values[i] ?? null;
      late.set(i, reached);
      return table.slice(0, this.at).findLast((line) => line[i] !== null)?.[i] ?? null;
    });
    return [latest, late];
  }

  #dims() {
    const dims = /^\[(\d+), (\d+)\]$/.exec(this.page.setting(this.job, "topology.dims") ?? "");
    return dims ? [Number(dims[1]), Number(dims[2])] : null;
  }

  #domain(table) {
    let [low, high] = [Infinity, -Infinity];
    for (const line of table) for (const value of line) {
      if (value !== null && value < low) low = value;
      if (value !== null && value > high) high = value;
    }
    return low <= high ? [low, high] : [0, 1];
  }

  // What nodes were in a round that not all were: by node, in words.
  #roles(round) {
    const found = new Map();
    for (const [role, told] of Object.entries(this.view.roles ?? {})) {
      for (const node of told[round] ?? []) found.set(node, [...(found.get(node) ?? []), role]);
    }
    return found;
  }

  async #links(round) {
    if (!this.flow.has(round)) this.flow.set(round, await this.page.source.links(this.job, round).catch(() => ({ away: [], down: [] })));
    return this.flow.get(round);
  }

  #flow(links) {
    const { sources, targets } = this.view.links ?? { sources: [], targets: [] };
    if (this.state.flow === "plain" || this.state.flow === "none" || !sources.length) return null;
    const told = new Map();
    (links.sources ?? []).forEach((s, i) => {
      const key = `${Math.min(s, links.targets[i])} ${Math.max(s, links.targets[i])}`;
      told.set(key, (told.get(key) ?? 0) + (Array.isArray(links.bytes) ? links.bytes[i] : links.bytes ?? 1));
    });
    const all = !links.sources && links.bytes > 0;
    const most = [...told.values()].reduce((a, b) => Math.max(a, b), 1);
    const between = (s, e) => `${Math.min(s, targets[e])} ${Math.max(s, targets[e])}`;
    if (this.state.flow === "bytes") return sources.map((s, e) => (all ? 1 : (told.get(between(s, e)) ?? 0) / most));
    const ages = new Map((links.ages?.links ?? []).map(([s, t, age]) => [`${s} ${t}`, age])), rest = links.ages?.rest ?? null;
    return sources.map((s, e) => {
      const age = ages.get(between(s, e)) ?? rest;
      return age === null ? 0 : 1 / (1 + age / 4);
    });
  }

  #drawLegend([low, high], names) {
    if (names) {
      fill(this.legend, names.slice(0, 14).map((name, i) => h("span", {}, h("i", { class: "swatch", style: { background: kind(i, names.length) } }), name)),
        names.length > 14 ? h("span", {}, `and ${names.length - 14} more`) : null);
      return;
    }
    const bar = h("canvas", { width: 150, height: 10 });
    const pen = bar.getContext("2d");
    for (let i = 0; i < 150; i++) { pen.fillStyle = ramp(i / 149); pen.fillRect(i, 0, 1, 10); }
    const marked = this.network.marked, roles = [...new Set([...marked.roles.values()].flat())];
    const more = [this.view.samples ? "size: samples" : "", marked.down.length ? "dashed: link down" : "", marked.away.size ? "crossed: not there" : "", this.network.late.size ? "pale: not there yet" : "", roles.length ? `ringed: ${roles.join(", ")}` : ""].filter(Boolean);
    fill(this.legend, h("span", {}, called(this.colour)), number(low), bar, number(high), more.map((text) => h("span", {}, `· ${text}`)));
  }

  #drawSide(values, round) {
    const { overview } = this.page;
    const own = overview.jobs.find((job) => job.id === this.job);
    const column = this.view.columns.includes(this.colour) ? this.colour : "test_accuracy";
    const names = this.page.names();
    const curves = names.filter((name) => overview.methods[name]?.columns[column]).map((name) => {
      const { round: x, columns } = overview.methods[name];
      const { mean, half } = columns[column];
      const sure = half.some((value) => value !== null);
      return {
        name, index: names.indexOf(name), x, y: mean, dashed: name.endsWith("centralised"),
        low: sure ? mean.map((value, i) => value - (half[i] ?? 0)) : null, high: sure ? mean.map((value, i) => value + (half[i] ?? 0)) : null,
      };
    });
    const running = overview.seeds[`${own?.method}:${own?.seed}`];
    if (running?.columns[column] && own.state !== "done") {
      curves.push({ name: own.method, index: names.indexOf(own.method), x: running.round, y: running.columns[column], thin: names.length > 1 });
    }
    this.curve.draw(lines(curves, { x: "round", y: called(column), at: round }));
    const known = values.filter((value) => value !== null && value !== undefined);
    const roles = this.#roleMarks().filter((mark) => mark.round === round).map((mark) => mark.text.split(": "));
    const mean = known.reduce((a, b) => a + b, 0) / (known.length || 1);
    const kinds = this.matrix.values.length ? null : this.#kinds(this.view)[this.colour]?.names;
    fill(this.facts, facts(kinds ? [["nodes", known.length], ...roles] : [
      ["nodes", this.network.late.size ? `${known.length} of ${values.length}` : number(known.length)], [`mean ${called(this.colour)}`, h("span", { id: "mean" }, number(known.length ? mean : null))],
      ["lowest", number(known.length ? known.reduce((a, b) => Math.min(a, b)) : null)], ["highest", number(known.length ? known.reduce((a, b) => Math.max(a, b)) : null)],
      ...roles,
    ]));
    const { labels, counts } = kinds ? { labels: kinds, counts: kinds.map((_, i) => known.filter((value) => value === i).length) } : histogram(known, 20);
    this.spread.draw(bars(labels, counts, { x: called(this.colour), y: "nodes", tint: ink("faint") }));
    const near = [...this.#roleMarks(), ...this.view.marks].filter((mark) => mark.round <= round).sort((a, b) => b.round - a.round || b.time - a.time).slice(0, 40);
    fill(this.happened, near.length ? near.map((mark) => h("li", {}, h("b", {}, `round ${mark.round}`), h("span", {}, mark.text)))
      : h("li", { class: "faint" }, "Nothing worth telling yet."));
  }
}
