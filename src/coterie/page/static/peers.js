// Real peers: each with what it knows of its neighbours, and all of them as one network.
import { bytes, called, colour, fill, h, number, select, span } from "./dom.js";
import { Chart, lines } from "./charts.js";
import { NetworkView } from "./network.js";
import { facts, table } from "./tables.js";

export class Peers {
  constructor(page) {
    this.page = page;
    this.network = new NetworkView({ chosen: (node) => { this.node = node; this.network.selected = node; this.#draw(); } });
    this.curve = new Chart("peers", 280);
    this.column = "test_accuracy";
    this.colour = "score";
    this.node = null;
  }

  async start() {
    const { page } = this;
    page.title = h("h1", {}, "Peers");
    page.pill = h("span", { class: "pill" });
    page.refresh = () => this.#draw();
    this.tools = h("div", { class: "tools" });
    this.side = h("div");
    this.below = h("div");
    fill(page.root, page.header(false), this.tools, h("div", { class: "learning" },
      h("div", {}, this.network.place, h("p", { class: "legend" }, "crossed: does not answer · dashed: a link whose other end is not heard")),
      this.side), this.below, page.helping());
    await this.#look();
    page.source.follow([], () => this.#look(), (open) => { if (!open) { page.pill.className = "pill stopped"; page.pill.textContent = "the server has gone"; } });
  }

  async #look() {
    if (this.looking) return;
    this.looking = true;
    try { this.peers = (await this.page.source.overview([])).peers; this.#draw(); } finally { this.looking = false; }
  }

  // Peers and whoever they speak of, by name.
  #known() {
    const names = [], where = new Map(), scores = [], rounds = [], away = new Set(), links = new Map(), down = [];
    const number = (name) => {
      if (!where.has(name)) { where.set(name, names.length); names.push(name); scores.push(null); rounds.push(null); }
      return where.get(name);
    };
    for (const { label, status, done, round, curve } of this.peers) {
      const i = number(status?.name ?? label);
      if (!status && !done) away.add(i);
      if (status || done) [scores[i], rounds[i]] = status ? [status.score, status.round] : [curve.columns[this.column]?.at(-1) ?? null, round];
    }
    for (const { status } of this.peers) {
      if (!status) continue;
      const i = where.get(status.name);
      for (const [name, seen] of Object.entries(status.neighbours)) {
        const j = number(name);
        if (!this.peers.some((peer) => (peer.status?.name ?? peer.label) === name)) rounds[j] = Math.max(rounds[j] ?? 0, seen.round ?? 0);
        links.set(`${Math.min(i, j)} ${Math.max(i, j)}`, [i, j]);
        if (!seen.alive) { down.push([i, j]); if (!this.peers.some((peer) => peer.status?.name === name)) away.add(j); }
      }
    }
    const front = Math.max(0, ...rounds);
    const lags = rounds.map((round) => (round === null ? null : front - round));
    return { names, where, away, down, links: [...links.values()], score: scores, round: rounds, lag: lags };
  }

  #draw() {
    const known = this.#known(), { peers, page } = this;
    const live = peers.filter((peer) => peer.status);
    const states = [...new Set(live.map((peer) => peer.status.state))];
    const over = peers.filter((peer) => !peer.status && peer.done).length;
    page.pill.className = `pill ${live.length ? "running" : over === peers.length ? "done" : "stopped"}`;
    page.pill.textContent = over === peers.length ? "done"
      : `${live.length} of ${peers.length} answer${states.length ? `: ${states.join(", ")}` : ""}${over ? `; ${over} done` : ""}`;
    const pairs = known.links;
    this.network.setNetwork({
      nodes: known.names.length, names: known.names,
      links: { sources: pairs.map(([a]) => a), targets: pairs.map(([, b]) => b), weights: pairs.map(() => 1) },
    }, "force", null, `${known.names.join("\n")} ${pairs.length}`);
    const metric = live[0]?.status.metric ?? "score", values = known[this.colour];
    const most = Math.max(1, ...values.filter((value) => value !== null));
    this.network.setValues(values, [0, most], this.colour === "score" ? metric : this.colour);
    this.network.marked = { away: known.away, down: known.down, roles: new Map() };
    this.network.draw();
    this.network.canvas.dataset.drawn = known.names.length;
    const columns = [...new Set(peers.flatMap((peer) => Object.keys(peer.curve.columns)))];
    if (columns.length && !columns.includes(this.column)) this.column = columns[0];
    fill(this.tools, select("colour", [["score", metric], ["round", "round it has come to"], ["lag", "rounds behind the first"]], this.colour, (name) => { this.colour = name; this.#draw(); }),
      h("span", { class: "note" }, `from 0, dark, to ${number(most)}`), columns.length ? select("show", columns.map((name) => [name, called(name)]), this.column, (name) => { this.column = name; this.#draw(); }) : null);
    const chosen = this.node === null ? peers : peers.filter((peer) => (peer.status?.name ?? peer.label) === known.names[this.node]);
    fill(this.side, h("h2", {}, called(this.column)), this.curve.box, chosen.map((peer) => this.#facts(peer)));
    this.curve.draw(lines(peers.filter((peer) => peer.curve.columns[this.column]).map((peer) => ({
      name: peer.status?.name ?? peer.label, index: peers.indexOf(peer), x: peer.curve.round, y: peer.curve.columns[this.column],
    })), { x: "round", y: called(this.column) }));
    fill(this.below, chosen.map((peer) => this.#neighbours(peer)));
  }

  #facts({ label, status, job, done, round }) {
    const head = h("h2", {}, h("i", { class: "swatch", style: { background: colour(this.peers.findIndex((peer) => peer.label === label)) } }), status?.name ?? label);
    if (!status && done) return h("div", { class: "panel" }, head, facts([["doing", "finished"], ["round", number(round)]]));
    if (!status) return h("div", { class: "panel" }, head, h("p", { class: "warn" }, `does not answer${job ? `; last seen in ${job}` : ""}`));
    return h("div", { class: "panel" }, head, facts([
      ["doing", status.state], ["round", `${status.round} of ${status.rounds}`], [status.metric, number(status.score)],
      ["a round takes", span(status.round_seconds)], ["waits at most", span(status.deadline_seconds)],
      ["sent", bytes(status.sent_bytes)], ["received", bytes(status.received_bytes)], ["checkpoints", number(status.checkpoints)],
    ]), status.errors.slice(-3).map((error) => h("p", { class: "note warn" }, error.text)));
  }

  #neighbours({ label, status, marks }) {
    const refused = (seen) => Object.entries(seen.refusals).map(([why, count]) => `${why} ×${count}`).join(", ");
    const ago = (seen) => (seen.last_heard ? `${span(Date.now() / 1000 - seen.last_heard)} ago` : "never");
    if (!status && !marks.length) return null;
    return h("section", {}, h("h2", {}, `What ${status?.name ?? label} knows of its neighbours`),
      status ? table({
        headers: ["neighbour", "alive", "round", "lag", "last heard", "sent", "received", "deadlines missed", "refused", "trouble"],
        rows: Object.values(status.neighbours).map((seen) => [seen.name, seen.alive ? "yes" : "no", number(seen.round), number(seen.lag), ago(seen),
          bytes(seen.sent_bytes), bytes(seen.received_bytes), number(seen.missed), refused(seen) || "—", seen.last_error || seen.last_refusal || "—"]),
      }) : null,
      marks.length ? h("ul", { class: "happened" }, marks.toReversed().map((mark) => h("li", {}, h("b", {}, `round ${mark.round}`), h("span", {}, mark.text)))) : null);
  }
}
