// The views beside the network: curves, results, data, and how it was set up.
import { bytes, called, colour, fill, h, humane, ink, number, select, span } from "./dom.js";
import { asCsv, bars, boxes, bubbles, Chart, every, lines } from "./charts.js";
import { facts, table } from "./tables.js";

const LABEL = 190; // pixels for the names of two methods
const AGAINST = ["round", "sent_bytes", "batches", "train_seconds", "flops"];

export class Curves {
  constructor(page) {
    this.page = page;
    this.chart = new Chart("curves", 520);
    this.tools = h("div", { class: "tools" });
    this.place = h("div", {}, this.tools, this.chart.box);
  }

  show() {
    const { overview, state, refresh } = this.page;
    const again = (key) => (value) => { state[key] = value; refresh(); };
    if (!overview.columns.includes(state.column)) state.column = overview.columns.includes("test_accuracy") ? "test_accuracy" : overview.columns[0];
    const against = AGAINST.filter((name) => name === "round" || overview.columns.includes(name));
    fill(this.tools,
      select("show", overview.columns.map((name) => [name, called(name)]), state.column, again("column")),
      select("against", against.map((name) => [name, called(name)]), state.against, again("against")),
      select("band", [["half", "95 % over seeds"], ["spread", "± 1 s.d. over nodes"], ["none", "none"], ["seeds", "each seed"]], state.band, again("band")),
      select("x axis", [["linear", "linear"], ["log", "logarithmic"]], state.x, again("x")),
      select("y axis", [["linear", "linear"], ["log", "logarithmic"]], state.y, again("y")),
      h("span", { class: "room" }), this.chart.buttons());
    const curves = this.#curves();
    if (curves.length) {
      this.chart.draw(lines(curves, { x: called(state.against), y: called(state.column), logX: state.x === "log", logY: state.y === "log" }), () =>
        asCsv(["method", called(state.against), called(state.column), "low", "high"],
          curves.flatMap((curve) => curve.x.map((x, i) => [curve.name, x, curve.y[i], curve.low?.[i], curve.high?.[i]]))));
    }
  }

  #curves() {
    const { overview, state } = this.page;
    const names = this.page.names();
    const along = (known, pick) => (state.against === "round" ? known.round : pick(known.columns[state.against]));
    if (state.band === "seeds") {
      return Object.entries(overview.seeds).filter(([, known]) => known.columns[state.column]).map(([key, known]) => {
        const name = key.slice(0, key.lastIndexOf(":"));
        return { name, index: names.indexOf(name), x: along(known, (each) => each ?? []), y: known.columns[state.column], thin: true };
      });
    }
    return names.filter((name) => overview.methods[name]?.columns[state.column]).map((name) => {
      const known = overview.methods[name], { mean } = known.columns[state.column];
      const wide = state.band === "none" ? [] : known.columns[state.column][state.band];
      const some = wide.some((value) => value !== null);
      return {
        name, index: names.indexOf(name), x: along(known, (each) => each?.mean ?? []), y: mean, dashed: name.endsWith("centralised"),
        low: some ? mean.map((value, i) => value - (wide[i] ?? 0)) : null, high: some ? mean.map((value, i) => value + (wide[i] ?? 0)) : null,
      };
    });
  }
}

export class Results {
  constructor(page) {
    this.page = page;
    this.boxes = new Chart("nodes at the end", 360);
    this.differences = new Chart("differences", 360);
    this.place = h("div");
  }

  show() {
    const { overview, state, refresh } = this.page;
    const judged = Object.keys(overview.boxes);
    if (!judged.includes(state.judged)) state.judged = judged[0];
    const names = this.page.names();
    const entries = names.filter((name) => overview.boxes[state.judged]?.[name])
      .map((name) => ({ name, index: names.indexOf(name), ...overview.boxes[state.judged][name] }));
    const gaps = (overview.differences[state.judged] ?? []).toReversed();
    this.differences.box.style.setProperty("height", `${Math.max(220, 70 + 26 * gaps.length)}px`);
    fill(this.place,
      h("section", {}, overview.table ? table(overview.table) : h("p", { class: "faint" }, "Nothing to compare yet."), h("p", { class: "note" }, overview.ran)),
      h("section", {}, h("div", { class: "tools" }, select("judged by", judged.map((name) => [name, called(name)]), state.judged, (value) => { state.judged = value; refresh(); })),
        h("div", { class: "columns" },
          h("div", {}, this.#head("Every node at the last round", this.boxes), this.boxes.box),
          gaps.length ? h("div", {}, this.#head("Differences between methods", this.differences), this.differences.box,
            h("p", { class: "note" }, "Mean over the seeds that both have, with its 95 % interval where there are several. Right of zero the first is greater.")) : null)),
      h("section", {}, h("h2", {}, "What it cost"), this.#costs()));
    this.boxes.draw(boxes(entries, called(state.judged)), () => asCsv(["method", "lowest", "q25", "median", "q75", "highest"], entries.map((each) => [each.name, ...each.five])));
    if (gaps.length) this.differences.draw(gapChart(gaps, names, called(state.judged)), () => asCsv(["first", "second", "difference", "half", "seeds"], gaps.map((gap) => [gap.a, gap.b, gap.mean, gap.half, gap.seeds])));
  }

  #head(text, chart) {
    return h("div", { class: "panelhead" }, h("h2", {}, text), h("span", { class: "room" }), chart.buttons());
  }

  #costs() {
    const { costs, jobs } = this.page.overview;
    const wall = (name) => {
      const known = jobs.filter((job) => job.method === name && job.seconds !== null).map((job) => job.seconds);
      return known.length ? known.reduce((a, b) => a + b) / known.length : null;
    };
    return table({
      title: "All nodes together, mean over seeds",
      headers: ["method", "sent", "mini-batches", "operations", "training", "merging", "measuring", "by the clock"],
      rows: costs.map((row) => [row.method, bytes(row.sent_bytes), humane(row.batches), humane(row.flops), span(row.train_seconds), span(row.merge_seconds), span(row.evaluate_seconds), span(wall(row.method))]),
    });
  }
}

function gapChart(gaps, names, what) {
  const at = (gap) => [gap.mean - (gap.half ?? 0), gap.mean + (gap.half ?? 0)];
  const most = Math.max(...gaps.flatMap(at).map(Math.abs), 1e-9) * 1.1, ten = 10 ** Math.floor(Math.log10(most));
  const reach = Number((Math.ceil((2 * most) / ten) * ten / 2).toPrecision(2)); // a round number
  const made = boxes([], what), named = gaps.map((gap) => `${gap.a} − ${gap.b}`);
  return {
    ...made,
    grid: { left: 14 + Math.min(LABEL, 6.6 * Math.max(...named.map((name) => name.length))), right: 24, top: 10, bottom: 44 },
    tooltip: { ...made.tooltip, formatter: ({ value }) => { const gap = gaps[value[1]]; return `${gap.a} − ${gap.b}\n${number(gap.mean)} ± ${number(gap.half)}\nover ${gap.seeds} seed${gap.seeds > 1 ? "s" : ""}`; } },
    xAxis: { ...made.yAxis, min: -reach, max: reach, interval: reach / 2, name: `difference of ${what}`, nameGap: 28 },
    yAxis: { ...made.xAxis, data: named, axisLabel: { ...made.xAxis.axisLabel, rotate: 0, width: LABEL } },
    series: [{
      type: "custom", data: gaps.map((gap, i) => [gap.mean, i]),
      markLine: { silent: true, symbol: "none", label: { show: false }, data: [{ xAxis: 0 }], lineStyle: { color: ink("faint"), type: "solid", width: 1 } },
      renderItem: (_, api) => {
        const gap = gaps[api.value(1)], [low, high] = at(gap).map((value) => api.coord([value, api.value(1)]));
        const [cx, cy] = api.coord([gap.mean, api.value(1)]);
        const tint = colour(names.indexOf(gap.mean > 0 ? gap.a : gap.b));
        return { type: "group", children: [
          { type: "line", shape: { x1: low[0], y1: cy, x2: high[0], y2: cy }, style: { stroke: tint, lineWidth: 2 } },
          { type: "circle", shape: { cx, cy, r: 5 }, style: { fill: tint } },
        ] };
      },
    }],
  };
}

export class DataView {
  constructor(page) {
    this.page = page;
    this.bubbles = new Chart("allocation", 380);
    this.degrees = new Chart("degrees", 260);
    this.spectrum = new Chart("spectrum", 260);
    this.place = h("div");
  }

  async show() {
    const { source, overview, state, refresh } = this.page;
    const jobs = overview.jobs.filter((job) => !source.has || source.has(job.id));
    if (!jobs.length) return;
    if (!jobs.some((job) => job.id === state.job)) state.job = (jobs.find((job) => job.nodes > 1) ?? jobs[0]).id;
    const view = await source.job(state.job);
    const listed = jobs.map((job) => [job.id, `${job.method}, seed ${job.seed}`]);
    fill(this.place,
      h("div", { class: "tools" }, select("job", listed, state.job, (id) => { state.job = id; refresh(); })),
      view.facts ? null : h("p", { class: "faint" }, "Who holds what was not written down by this run."),
      view.labels ? h("section", {}, h("div", { class: "panelhead" }, h("h2", {}, "Who holds how many samples of which class"), h("span", { class: "room" }), this.bubbles.buttons()), this.bubbles.box,
        every(view.labels) > 1 ? h("p", { class: "note" }, `One node in ${every(view.labels)} is drawn.`) : null) : null,
      view.skew ? h("section", {}, h("h2", {}, "How uneven it is"), facts(Object.entries(view.skew).map(([name, value]) => [name.replaceAll("_", " "), number(value)]))) : null,
      view.facts ? h("section", {}, h("h2", {}, "The network"), facts(Object.entries(view.facts).map(([name, value]) => [name, typeof value === "boolean" ? (value ? "yes" : "no") : number(value)])),
        h("div", { class: "columns" },
          h("div", {}, h("h2", {}, "Degrees"), this.degrees.box),
          view.spectrum?.length > 1 ? h("div", {}, h("h2", {}, "Spectrum of averaging"), this.spectrum.box, h("p", { class: "note" }, "Moduli of the eigenvalues of the averaging matrix: the second says how fast nodes agree.")) : null)) : null);
    if (view.labels) {
      this.bubbles.draw(bubbles(view.labels), () => asCsv(["node", ...view.labels[0].map((_, i) => `class ${i}`)], view.labels.map((line, i) => [i, ...line])));
    }
    if (view.degrees) {
      const counts = new Map();
      for (const degree of view.degrees) counts.set(degree, (counts.get(degree) ?? 0) + 1);
      const order = [...counts.keys()].sort((a, b) => a - b);
      this.degrees.draw(bars(order, order.map((degree) => counts.get(degree)), { x: "degree", y: "nodes" }));
    }
    if (view.spectrum?.length > 1) {
      this.spectrum.draw(lines([{ name: "modulus", index: 0, x: view.spectrum.map((_, i) => i + 1), y: view.spectrum }], { x: "eigenvalue", y: "modulus", legend: false }));
    }
  }
}

export class Setup {
  constructor(page) { this.page = page; this.place = h("div"); }

  show() {
    const { runs } = this.page.overview;
    const keys = [...new Set(runs.flatMap((run) => Object.keys(run.settings)))];
    const differs = (key) => new Set(runs.map((run) => run.settings[key])).size > 1;
    keys.sort((a, b) => differs(b) - differs(a));
    const facing = [...new Set(runs.flatMap((run) => Object.keys(run.environment)))].filter((key) => key !== "jobs");
    const said = (value) => (value === undefined ? "—" : typeof value === "string" ? value : JSON.stringify(value));
    const grid = (names, pick) => h("div", { class: "wide" }, h("table", { class: "settings" },
      h("thead", {}, h("tr", {}, h("th", {}, ""), runs.map((run) => h("th", { style: { "text-align": "left" } }, run.label)))),
      h("tbody", {}, names.map((name) => h("tr", { class: runs.length > 1 && new Set(runs.map((run) => said(pick(run)[name]))).size > 1 ? "differs" : null },
        h("th", { scope: "row" }, name.split(/(?<=[._])/).map((part) => [part, h("wbr")])), runs.map((run) => h("td", { class: "text" }, said(pick(run)[name]))))))));
    fill(this.place,
      runs.filter((run) => run.trouble).map((run) => h("p", { class: "warn" }, `${run.label}: ${run.trouble}`)),
      h("section", {}, h("h2", {}, "Configuration"), runs.length > 1 ? h("p", { class: "note" }, "What differs stands first.") : null, grid(keys, (run) => run.settings)),
      h("section", {}, h("h2", {}, "Environment"), grid(facing, (run) => run.environment)),
      runs.map((run) => h("details", {}, h("summary", {}, `config.toml of ${run.label}`), h("pre", {}, run.configuration))));
  }
}
