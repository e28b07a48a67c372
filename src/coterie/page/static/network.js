// The network on a canvas: nodes coloured by a value, sized by their data; links by what went along them.
import { h, ink, inkOn, kind, number, ramp } from "./dom.js";
import { Forces, grid, ring } from "./layouts.js";

const LEVELS = 48;
const ROUGH = 2000; // links that are drawn of more, while the picture moves

export class NetworkView {
  constructor({ chosen, hovered }) {
    this.canvas = h("canvas", { class: "network", role: "img", tabIndex: 0, "aria-label": "the network" });
    this.tip = h("div", { class: "tip", hidden: true });
    this.place = h("div", { class: "stage" }, this.canvas, this.tip);
    this.chosen = chosen;
    this.hovered = hovered;
    this.view = { x: 0, y: 0, zoom: 1 };
    this.positions = [];
    this.values = [];
    this.late = new Map(); // nodes that are not there yet: the round that their value is of
    this.layout = "force";
    this.selected = null;
    this.hover = null;
    this.marked = { away: new Set(), down: [], roles: new Map() };
    this.flow = null;
    this.#listen();
    new ResizeObserver(() => this.draw()).observe(this.place);
  }

  setNetwork(job, layout, dims, key) {
    const n = job.nodes;
    const whole = `${key} ${layout} ${n} ${job.links?.sources.length}`;
    const same = this.known === whole;
    [this.job, this.layout, this.known] = [job, layout, whole];
    this.links = job.links ?? { sources: [], targets: [], weights: [] };
    this.largest = Math.max(1, ...(job.samples ?? []).slice(0, 1e5));
    if (same) return;
    this.forces = null;
    if (layout === "ring") this.positions = ring(n);
    else if (layout === "grid") this.positions = grid(n, dims);
    else {
      this.forces = new Forces(n, this.links.sources, this.links.targets);
      const end = performance.now() + 250;
      while (!this.forces.settled && performance.now() < end) this.forces.step();
      this.positions = this.forces.places();
      if (!this.forces.settled) requestAnimationFrame(() => this.#settle(this.forces));
    }
    this.view = { x: 0, y: 0, zoom: 1 };
  }

  #settle(forces) {
    if (this.forces !== forces) return;
    const end = performance.now() + 24;
    do forces.step(); while (!forces.settled && performance.now() < end);
    this.positions = forces.places();
    this.rough = !forces.settled && this.links.sources.length > ROUGH;
    this.draw();
    if (!forces.settled) requestAnimationFrame(() => this.#settle(forces));
  }

  setValues(values, domain, describe, kinds = null) {
    Object.assign(this, { values, domain, describe, kinds });
  }

  #colourOf(i) {
    const value = this.values[i];
    if (value === null || value === undefined) return null;
    if (this.kinds) return kind(value, this.kinds.length);
    const [low, high] = this.domain;
    return ramp(Math.round((LEVELS * (value - low)) / (high - low || 1)) / LEVELS);
  }

  #radius(i, scale) {
    const n = this.positions.length;
    const base = Math.min(Math.max((0.42 * scale) / Math.sqrt(n), 1.6), 17) * Math.min(Math.sqrt(this.view.zoom), 3);
    const samples = this.job.samples?.[i];
    return samples === undefined ? base : base * (0.45 + 0.75 * Math.sqrt(samples / this.largest));
  }

  #frame() {
    const { width, height } = this.place.getBoundingClientRect();
    const edge = Array.isArray(this.job?.names) ? [46, 40] : [26, 26]; // names stand below their nodes
    const room = [width / 2 - edge[0], height / 2 - edge[1]], least = Math.min(...room);
    const wide = this.layout === "force" ? 1.7 : 1; // forces may stretch to the place; a ring stays round
    const [sx, sy] = room.map((side) => Math.min(side, wide * least) * this.view.zoom);
    return { width, height, scale: least * this.view.zoom, sx, sy, cx: width / 2 + this.view.x, cy: height / 2 + this.view.y };
  }

  // While it is moved, some of many links stand for all; the rest follows when it rests.
  #move() {
    this.rough = this.links.sources.length > ROUGH;
    this.pending ??= requestAnimationFrame(() => { this.pending = null; this.draw(); });
    clearTimeout(this.resting);
    this.resting = setTimeout(() => { this.rough = false; this.draw(); }, 160);
  }

  draw() {
    const { width, height, scale, sx, sy, cx, cy } = this.#frame();
    if (!width || !this.job) return;
    const ratio = devicePixelRatio || 1;
    this.canvas.width = width * ratio;
    this.canvas.height = height * ratio;
    this.canvas.style.width = `${width}px`;
    this.canvas.style.height = `${height}px`;
    const pen = this.canvas.getContext("2d");
    pen.scale(ratio, ratio);
    this.points = this.positions.map(([x, y]) => [cx + x * sx, cy + y * sy]);
    this.radii = this.points.map((_, i) => this.#radius(i, scale / this.view.zoom));
    this.#drawLinks(pen);
    this.#drawNodes(pen);
  }

  #drawLinks(pen) {
    const { sources, targets } = this.links;
    const flows = this.flow;
    const fade = Math.min(Math.max(6 / Math.sqrt(sources.length + 1), 0.12), 0.6);
    const groups = new Map();
    const near = this.selected ?? this.hover;
    for (let e = 0; e < sources.length; e += this.rough ? Math.ceil(sources.length / ROUGH) : 1) {
      const own = near !== null && (sources[e] === near || targets[e] === near);
      const level = own ? 9 : flows ? Math.round(4 * (flows[e] ?? 0)) : 2;
      if (!groups.has(level)) groups.set(level, []);
      groups.get(level).push(e);
    }
    pen.strokeStyle = ink("link");
    for (const [level, list] of [...groups].sort(([a], [b]) => a - b)) {
      pen.globalAlpha = level === 9 ? 0.95 : fade * (near === null ? 1 : 0.35) * (flows ? 0.25 + level / 3 : 1);
      pen.lineWidth = level === 9 ? 1.8 : flows ? 0.5 + level * 0.55 : 1;
      pen.strokeStyle = level === 9 ? ink("accent") : ink("link");
      pen.beginPath();
      for (const e of list) {
        const from = this.points[sources[e]], to = this.points[targets[e]];
        pen.moveTo(from[0], from[1]);
        pen.lineTo(to[0], to[1]);
      }
      pen.stroke();
    }
    if (this.job.directed && sources.length < 3000) this.#drawHeads(pen);
    pen.globalAlpha = 0.9;
    pen.strokeStyle = ink("alert");
    pen.lineWidth = 1.3;
    pen.setLineDash([3, 4]);
    pen.beginPath();
    for (const [a, b] of this.marked.down) {
      if (this.points[a] && this.points[b]) { pen.moveTo(...this.points[a]); pen.lineTo(...this.points[b]); }
    }
    pen.stroke();
    pen.setLineDash([]);
    pen.globalAlpha = 1;
  }

  #drawHeads(pen) {
    const { sources, targets } = this.links;
    pen.globalAlpha = 0.6;
    pen.fillStyle = ink("link");
    for (let e = 0; e < sources.length; e++) {
      const [[ax, ay], [bx, by]] = [this.points[sources[e]], this.points[targets[e]]];
      const turn = Math.atan2(by - ay, bx - ax), far = this.radii[targets[e]] + 1;
      const [x, y] = [bx - far * Math.cos(turn), by - far * Math.sin(turn)];
      pen.beginPath();
      pen.moveTo(x, y);
      pen.lineTo(x - 6 * Math.cos(turn - 0.4), y - 6 * Math.sin(turn - 0.4));
      pen.lineTo(x - 6 * Math.cos(turn + 0.4), y - 6 * Math.sin(turn + 0.4));
      pen.fill();
    }
  }

  #drawNodes(pen) {
    const groups = new Map(), unknown = ink("unknown");
    for (let i = 0; i < this.points.length; i++) {
      const shown = `${this.#colourOf(i) ?? unknown}${this.late.has(i) ? " late" : ""}`;
      if (!groups.has(shown)) groups.set(shown, []);
      groups.get(shown).push(i);
    }
    const many = this.points.length > 2500;
    pen.strokeStyle = ink("paper");
    pen.lineWidth = 1.2;
    for (const [shown, list] of groups) {
      pen.fillStyle = shown.replace(" late", "");
      pen.globalAlpha = shown.endsWith("late") ? 0.55 : 1;
      pen.beginPath();
      for (const i of list) {
        const [x, y] = this.points[i];
        pen.moveTo(x + this.radii[i], y);
        pen.arc(x, y, this.radii[i], 0, 7);
      }
      pen.fill();
      if (!many && !this.rough) pen.stroke();
    }
    pen.globalAlpha = 1;
    this.#drawMarks(pen);
  }

  #drawMarks(pen) {
    pen.strokeStyle = ink("alert");
    pen.lineWidth = 2;
    pen.beginPath();
    for (const i of this.marked.away) {
      if (!this.points[i]) continue;
      const [[x, y], r] = [this.points[i], this.radii[i] * 0.7 + 1];
      pen.moveTo(x - r, y - r); pen.lineTo(x + r, y + r);
      pen.moveTo(x - r, y + r); pen.lineTo(x + r, y - r);
    }
    pen.stroke();
    pen.strokeStyle = ink("ink");
    pen.beginPath();
    for (const i of this.marked.roles.keys()) {
      if (!this.points[i]) continue;
      const [[x, y], r] = [this.points[i], this.radii[i] + 6];
      pen.moveTo(x + r, y);
      pen.arc(x, y, r, 0, 7);
    }
    pen.stroke();
    for (const [i, wide] of [[this.hover, 2], [this.selected, 3]]) {
      if (i === null || !this.points[i]) continue;
      pen.strokeStyle = ink("accent");
      pen.lineWidth = wide;
      pen.beginPath();
      pen.arc(...this.points[i], this.radii[i] + 3, 0, 7);
      pen.stroke();
    }
    if (this.points.length > 400) return;
    pen.textAlign = "center";
    pen.textBaseline = "middle";
    for (let i = 0; i < this.points.length; i++) {
      if (this.radii[i] < 9) continue;
      const fill = this.#colourOf(i);
      pen.font = `${Math.min(this.radii[i] * 0.95, 13)}px system-ui`;
      pen.fillStyle = fill === null ? ink("soft") : this.late.has(i) ? ink("ink") : inkOn(fill);
      const [x, y] = this.points[i], named = Array.isArray(this.job.names) && this.job.names[i];
      if (named) pen.fillStyle = ink("ink");
      pen.fillText(named ? named.slice(0, 24) : String(i), x, named ? y + this.radii[i] + 11 : y);
    }
  }

  at(x, y) {
    let [best, nearest] = [null, Infinity];
    for (let i = 0; i < (this.points ?? []).length; i++) {
      const far = Math.hypot(this.points[i][0] - x, this.points[i][1] - y) - this.radii[i];
      if (far < Math.min(nearest, 5)) [best, nearest] = [i, far];
    }
    return best;
  }

  #listen() {
    let from = null, moved = false;
    const spot = (event) => {
      const box = this.canvas.getBoundingClientRect();
      return [event.clientX - box.left, event.clientY - box.top];
    };
    this.canvas.addEventListener("pointerdown", (event) => {
      from = { start: spot(event), x: this.view.x, y: this.view.y };
      moved = false;
      this.canvas.setPointerCapture(event.pointerId);
    });
    this.canvas.addEventListener("pointermove", (event) => {
      const [x, y] = spot(event);
      if (from) {
        const [dx, dy] = [x - from.start[0], y - from.start[1]];
        moved ||= Math.hypot(dx, dy) > 4;
        if (moved) { this.view.x = from.x + dx; this.view.y = from.y + dy; this.#move(); }
        return;
      }
      const found = this.at(x, y);
      if (found !== this.hover) { this.hover = found; this.draw(); this.hovered?.(found); }
      this.#hint(found, x, y);
    });
    this.canvas.addEventListener("pointerup", (event) => {
      if (from && !moved) this.chosen(this.at(...spot(event)));
      from = null;
    });
    this.canvas.addEventListener("pointerleave", () => { this.hover = null; this.tip.hidden = true; this.draw(); });
    this.canvas.addEventListener("wheel", (event) => {
      event.preventDefault();
      const [x, y] = spot(event), { cx, cy } = this.#frame();
      const by = Math.min(Math.max(this.view.zoom * Math.exp(-event.deltaY / 400), 0.5), 40) / this.view.zoom;
      this.view = { x: this.view.x + (x - cx) * (1 - by), y: this.view.y + (y - cy) * (1 - by), zoom: this.view.zoom * by };
      this.#move();
    }, { passive: false });
    this.canvas.addEventListener("dblclick", () => { this.view = { x: 0, y: 0, zoom: 1 }; this.draw(); });
  }

  #hint(i, x, y) {
    this.tip.hidden = i === null;
    if (i === null) return;
    const said = this.kinds ? this.kinds[this.values[i]] : number(this.values[i]);
    const more = [`${this.describe ?? ""}: ${said ?? "—"}`];
    if (this.job.samples) more.push(`${this.job.samples[i]} samples`);
    if (this.job.degrees) more.push(`hears ${this.job.degrees[i]}`);
    if (this.late.has(i)) more.push(`has come to round ${this.late.get(i)}`);
    if (this.marked.roles.has(i)) more.push(`${this.marked.roles.get(i).join(", ")} of this round`);
    if (this.marked.away.has(i)) more.push("not there in this round");
    this.tip.replaceChildren(h("strong", {}, this.job.names?.[i] ?? `node ${i}`), ...more.map((text) => h("div", {}, text)));
    this.tip.style.setProperty("left", `${Math.min(x + 14, this.place.clientWidth - 170)}px`);
    this.tip.style.setProperty("top", `${Math.max(y - 10, 0)}px`);
  }
}
