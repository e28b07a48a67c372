// One node: its curves, what it holds, whom it hears and with which weight.
import { called, fill, h, number, select } from "./dom.js";
import { bars, Chart, cells, lines } from "./charts.js";
import { facts, table } from "./tables.js";

export class NodePanel {
  constructor(page, choose) {
    this.page = page;
    this.choose = choose;
    this.place = h("div", { class: "node" });
    this.curve = new Chart("node", 260);
    this.labels = new Chart("labels", 150);
    this.confusion = new Chart("confusion", 300);
  }

  async show(job, view, node) {
    [this.view, this.number] = [view, node];
    this.known = await this.page.source.node(job, node);
    const columns = Object.keys(this.known.columns);
    if (!columns.includes(this.column)) this.column = columns.includes("test_accuracy") ? "test_accuracy" : columns[0];
    const heard = this.#heard(job), roles = this.#roles();
    const told = this.known.confusion?.counts?.[node];
    fill(this.place,
      h("div", { class: "panelhead" }, h("h2", {}, view.names?.[node] ?? `Node ${node}`), h("span", { class: "room" }),
        columns.length ? select("show", columns.map((name) => [name, called(name)]), this.column, (name) => { this.column = name; this.#draw(); }) : null,
        h("button", { class: "quiet", onclick: () => this.choose(null) }, "close")),
      this.now = h("div"),
      roles.map(([role, rounds]) => h("p", { class: "note" }, `${role} in ${rounds.length} round${rounds.length > 1 ? "s" : ""}: ${rounds.slice(-30).join(", ")}`)),
      this.curve.box,
      view.labels ? [h("h2", {}, "Its samples"), this.labels.box] : null,
      told ? [h("h2", {}, `Which class it takes for which, round ${this.known.confusion.round}`), this.confusion.box] : null,
      h("h2", {}, `It hears ${Math.max(heard.length - 1, 0)}`),
      heard.length ? table({
        headers: ["model of", "link weight", "samples", "part of an average"],
        rows: heard.map(([who, weight, samples, part]) => [who, number(weight), number(samples), `${(100 * part).toFixed(1)} %`]),
        notes: ["In a round when it hears all of them, by a rule that averages whole models."],
      }) : h("p", { class: "faint" }, "nobody"));
    if (view.labels) this.labels.draw(bars(view.labels[node].map((_, i) => i), view.labels[node], { x: "class", y: "samples" }));
    if (told) this.confusion.draw(cells(told, { x: "taken for", y: "class" }));
    this.#draw();
  }

  #roles() {
    return Object.entries(this.view.roles ?? {})
      .map(([role, told]) => [role, Object.keys(told).filter((round) => told[round].includes(this.number))])
      .filter(([, rounds]) => rounds.length);
  }

  // Whom it hears and how much of an average each is, by the network's way of mixing; its own model comes last.
  #heard(job) {
    const { links, samples, directed, names } = this.view;
    if (!links) return [];
    const found = [];
    links.targets.forEach((target, e) => {
      if (target === this.number) found.push([links.sources[e], links.weights[e]]);
      else if (!directed && links.sources[e] === this.number) found.push([target, links.weights[e]]);
    });
    if (!found.length) return [];
    const mixing = this.page.setting(job, "topology.mixing"), metropolis = mixing === "metropolis";
    const rest = 1 - found.reduce((sum, [, weight]) => sum + weight, 0);
    found.sort(([a], [b]) => a - b).push([this.number, metropolis ? rest : Number(this.page.setting(job, "topology.own") ?? 1)]);
    const counts = ([who, weight]) => weight * (mixing === "data" ? samples?.[who] ?? 1 : 1);
    const whole = found.reduce((sum, each) => sum + counts(each), 0) || 1;
    return found.map(([who, weight]) => [who === this.number ? "itself" : names?.[who] ?? String(who), weight, samples?.[who] ?? null, counts([who, weight]) / whole]);
  }

  at(round) { this.round = round; this.#draw(); }

  #draw() {
    const { round: x, columns } = this.known;
    if (!x.length || !this.column) return;
    this.curve.draw(lines([{ name: called(this.column), index: 0, x, y: columns[this.column] }], { x: "round", y: called(this.column), at: this.round, legend: false }));
    const i = x.findLastIndex((each) => each <= (this.round ?? Infinity));
    const shown = ["test_accuracy", "test_loss", "consensus_distance", "sent_bytes"].filter((name) => columns[name]);
    fill(this.now, facts([
      ["samples", number(this.view.samples?.[this.number] ?? null)],
      ...(this.view.architectures ? [["model", this.view.architectures[this.number]]] : []),
      ...shown.map((name) => [called(name), number(columns[name][i] ?? null)]),
    ]));
  }
}
