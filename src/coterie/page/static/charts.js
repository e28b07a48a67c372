// Charts: lines with bands, boxes, bars, bubbles. Drawn by ECharts on a canvas; saved as PNG, SVG or CSV.
import { colour, dash, h, humane, ink, number, ramp, save, shape } from "./dom.js";

const echarts = window.echarts;

export class Chart {
  constructor(name, height) {
    this.name = name;
    this.box = h("div", { class: "chart", style: { height: `${height}px` }, role: "img", "aria-label": name });
    new ResizeObserver(() => this.made?.resize()).observe(this.box);
  }

  draw(options, csv) {
    this.options = options;
    this.csv = csv ?? this.csv;
    if (!this.box.isConnected || !this.box.clientWidth) { requestAnimationFrame(() => this.#later()); return; }
    this.#drawNow();
  }

  #later() { if (this.box.isConnected && this.box.clientWidth) this.#drawNow(); }

  #drawNow() {
    this.made ??= echarts.init(this.box, null, { renderer: "canvas" });
    const kept = this.made.getOption()?.legend?.[0]?.selected;
    if (kept && this.options.legend) this.options.legend.selected = kept;
    this.made.setOption(this.options, { notMerge: true });
  }

  save(kind) {
    const name = `${this.name.replaceAll(/[^\w-]+/g, "-")}.${kind}`;
    if (kind === "csv") return save(name, this.csv(), "text/csv");
    if (kind === "png") return save(name, this.made.getDataURL({ pixelRatio: 2, backgroundColor: ink("paper") }));
    const drawn = echarts.init(null, null, {
      renderer: "svg", ssr: true, width: this.box.clientWidth, height: this.box.clientHeight,
    });
    drawn.setOption({ ...this.options, backgroundColor: ink("paper") });
    save(name, drawn.renderToSVGString(), "image/svg+xml");
    return drawn.dispose();
  }

  buttons(kinds = ["png", "svg", "csv"]) {
    return h("span", { class: "saves" }, kinds.map((kind) =>
      h("button", { class: "quiet", onclick: () => this.save(kind), title: `save as ${kind.toUpperCase()}` }, kind)));
  }
}

export function axis(name, type = "value", more = {}) {
  const soft = ink("soft");
  return {
    type, name, nameLocation: "middle", nameGap: 30, scale: true,
    nameTextStyle: { color: soft, fontSize: 12 },
    axisLabel: { color: soft, formatter: type === "category" ? undefined : (value) => humane(value), hideOverlap: true },
    axisLine: { show: true, lineStyle: { color: ink("line") } },
    axisTick: { lineStyle: { color: ink("line") } },
    splitLine: { lineStyle: { color: ink("rule") } },
    ...more,
  };
}

export function base(more = {}) {
  return {
    animation: false,
    textStyle: { fontFamily: "system-ui, sans-serif", color: ink("ink") },
    grid: { left: 58, right: 18, top: 36, bottom: 46 },
    tooltip: {
      renderMode: "richText", confine: true, backgroundColor: ink("raised"), borderColor: ink("line"),
      textStyle: { color: ink("ink"), fontSize: 12 },
    },
    ...more,
  };
}

const drawable = (value, log) => value !== null && value !== undefined && (!log || value > 0);

// curves: [{name, x, y, low, high, thin, group}]
export function lines(curves, { x, y, logX, logY, at, legend = true, bottom = 46 }) {
  const series = [], reach = reached(curves.flatMap((curve) => curve.y).filter((value) => drawable(value, logY)), logY);
  for (const curve of curves) {
    const tint = curve.tint ?? colour(curve.index);
    const points = curve.x.map((px, i) => [px, curve.y[i], i]).filter(([px, py]) => drawable(px, logX) && drawable(py, logY));
    series.push({
      type: "line", name: curve.name, data: points.map(([px, py]) => [px, py]), color: tint, z: curve.thin ? 2 : 3,
      lineStyle: { width: curve.thin ? 1 : 2, opacity: curve.thin ? 0.55 : 1, type: curve.dashed ? "dashed" : dash(curve.index ?? 0) },
      symbol: shape(curve.index ?? 0), symbolSize: 6, showSymbol: !curve.thin && points.length < 25,
      emphasis: { disabled: true },
      markLine: at !== undefined && series.every((each) => !each.markLine) ? {
        silent: true, symbol: "none", label: { show: false }, data: [{ xAxis: at }],
        lineStyle: { color: ink("accent"), type: "solid", width: 1.5 },
      } : undefined,
    });
    if (curve.low) series.push(band(curve, tint, logX, logY, reach)); // after its line, whose sign the legend shows
  }
  const names = [...new Set(curves.map((curve) => curve.name))];
  const room = legend && names.length > 1;
  return {
    ...base({ grid: { left: 58, right: 18, top: room ? 44 : 14, bottom } }),
    legend: room ? {
      type: "scroll", top: 4, left: 50, data: names, textStyle: { color: ink("ink") }, itemWidth: 18,
      inactiveColor: ink("faint"), pageTextStyle: { color: ink("soft") },
    } : undefined,
    tooltip: {
      ...base().tooltip, trigger: "axis", order: "valueDesc",
      axisPointer: { lineStyle: { color: ink("soft") } },
      formatter: (found) => [`${x} ${humane(found[0]?.axisValue)}`, ...new Set(found
        .filter((each) => each.seriesType === "line")
        .map((each) => `${each.seriesName}: ${number(each.value[1])}`))].slice(0, 14).join("\n"),
    },
    xAxis: axis(x, logX ? "log" : "value", { scale: false, min: logX ? "dataMin" : undefined, splitLine: { show: false } }),
    yAxis: axis(y, logY ? "log" : "value", { nameGap: 42, min: logY ? "dataMin" : undefined }),
    series,
  };
}

// How far bands are drawn: half as far again as the lines go, and where those are shares, no further than from 0 to 1.
function reached(values, log) {
  const low = values.reduce((a, b) => Math.min(a, b), Infinity), high = values.reduce((a, b) => Math.max(a, b), -Infinity);
  if (log) return [low / 3, high * 3];
  const more = (high - low) / 2, shares = low >= 0 && high <= 1;
  return shares ? [Math.max(low - more, 0), Math.min(high + more, 1)] : [low >= 0 ? Math.max(low - more, 0) : low - more, high + more];
}

function band(curve, tint, logX, logY, [least, most]) {
  const kept = curve.x.map((px, i) => [px, curve.low[i], curve.high[i]])
    .filter(([px, low, high]) => drawable(px, logX) && low !== null && high !== null)
    .map(([px, low, high]) => [px, Math.max(low, least), Math.min(high, most)]);
  const ends = [kept.reduce((a, [, low]) => Math.min(a, low), Infinity), kept.reduce((a, [, , high]) => Math.max(a, high), -Infinity)];
  return {
    type: "custom", name: curve.name, silent: true, z: 1, clip: true, data: kept.length ? ends.map((end) => [kept[0][0], end]) : [],
    color: tint, tooltip: { show: false },
    renderItem: ({ dataIndex }, api) => dataIndex ? null : ({
      type: "polygon",
      shape: { points: [...kept.map(([px, low]) => api.coord([px, low])), ...kept.toReversed().map(([px, , high]) => api.coord([px, high]))] },
      style: { fill: tint, opacity: 0.16 },
    }),
  };
}

export function bars(labels, values, { x, y, tint, format = humane }) {
  return {
    ...base({ grid: { left: 52, right: 12, top: 12, bottom: 44 } }),
    tooltip: { ...base().tooltip, formatter: (one) => `${x} ${one.name}: ${format(one.value)}` },
    xAxis: axis(x, "category", { data: labels.map(String), nameGap: 26, splitLine: { show: false } }),
    yAxis: axis(y, "value", { scale: false, nameGap: 38, minInterval: 1 }),
    series: [{ type: "bar", data: values, barCategoryGap: "12%", itemStyle: { color: tint ?? colour(0) }, emphasis: { disabled: true } }],
  };
}

// Counts in bins between round numbers; a bin is named by where it begins.
export function histogram(values, count = 16) {
  const known = values.filter((value) => value !== null && value !== undefined);
  if (!known.length) return { labels: [], counts: [] };
  const low = known.reduce((a, b) => Math.min(a, b)), high = known.reduce((a, b) => Math.max(a, b));
  if (low === high) return { labels: [number(low)], counts: [known.length] };
  const rough = (high - low) / count, ten = 10 ** Math.floor(Math.log10(rough));
  const wide = ten * [1, 2, 5, 10].find((round) => round * ten >= rough * (1 - 1e-9));
  const first = Math.floor(low / wide + 1e-9);
  const counts = Array(Math.max(Math.ceil(high / wide - 1e-9), first + 1) - first).fill(0);
  for (const value of known) counts[Math.min(Math.floor(value / wide + 1e-9) - first, counts.length - 1)]++;
  return { labels: counts.map((_, i) => humane(Number(((first + i) * wide).toPrecision(6)))), counts };
}

export function boxes(entries, y) {
  return {
    ...base({ grid: { left: 58, right: 18, top: 14, bottom: entries.length > 5 ? 60 : 30 } }),
    tooltip: {
      ...base().tooltip,
      formatter: (one) => one.seriesType === "boxplot"
        ? `${one.name}\nhighest ${number(one.value[5])}\n75 % below ${number(one.value[4])}\nmedian ${number(one.value[3])}\n25 % below ${number(one.value[2])}\nlowest ${number(one.value[1])}`
        : `${entries[Math.round(one.value[0])]?.name}: ${number(one.value[1])}`,
    },
    xAxis: axis("", "category", { data: entries.map((each) => each.name), axisLabel: { color: ink("ink"), interval: 0, rotate: entries.length > 5 ? 25 : 0, width: 110, overflow: "truncate" }, splitLine: { show: false } }),
    yAxis: axis(y, "value", { nameGap: 42 }),
    series: [
      {
        type: "boxplot", boxWidth: [16, 46], emphasis: { disabled: true },
        data: entries.map((each) => ({ value: each.five, itemStyle: { color: "transparent", borderColor: colour(each.index), borderWidth: 1.8 } })),
      },
      {
        type: "custom", z: 1, dimensions: ["x", "y", "which"],
        data: entries.flatMap((each, at) => each.dots.map((value, i) => [at, value, ((i * 0.618) % 1) - 0.5])),
        renderItem: (_, api) => {
          const [cx, cy] = api.coord([api.value(0), api.value(1)]);
          const entry = entries[api.value(0)];
          return { type: "circle", shape: { cx: cx + api.value(2) * Math.min(api.size([1, 0])[0] * 0.42, 42), cy, r: 2.4 }, style: { fill: colour(entry.index), opacity: 0.4 } };
        },
      },
    ],
  };
}

// An axis of whole numbers below `count`, with room beyond the first and the last.
function within(count) {
  const formatter = (value) => (Number.isInteger(value) && value >= 0 && value < count ? humane(value) : "");
  const axisLine = { onZero: false, lineStyle: { color: ink("line") } };
  return { min: -1, max: count, minInterval: 1, scale: false, axisLine, ...(count <= 20 ? { interval: 1 } : {}), axisLabel: { color: ink("soft"), formatter, hideOverlap: true } };
}

// Of many nodes every so-manieth is drawn, so that bubbles stay apart.
export const every = (labels) => Math.max(1, Math.ceil((labels.length * labels[0].length) / 2000), Math.ceil(labels.length / 200));

export function bubbles(labels) {
  const nodes = labels.length, classes = labels[0].length, step = every(labels);
  const most = labels.reduce((a, line) => Math.max(a, ...line), 1);
  const data = [];
  for (let i = 0; i < nodes; i += step) labels[i].forEach((count, label) => count && data.push([i, label, count]));
  return {
    ...base({ grid: { left: 46, right: 16, top: 12, bottom: 44 } }),
    tooltip: { ...base().tooltip, formatter: ({ value }) => `node ${value[0]}, class ${value[1]}: ${value[2]} samples` },
    xAxis: axis("node", "value", { ...within(nodes), splitLine: { show: false } }),
    yAxis: axis("class", "value", { ...within(classes), nameGap: 28 }),
    series: [{
      type: "custom", data, dimensions: ["node", "class", "samples"],
      renderItem: (_, api) => {
        const [cx, cy] = api.coord([api.value(0), api.value(1)]);
        const [wide, tall] = api.size([step, 1]), room = Math.min(wide, tall) * 0.62;
        const r = Math.max(Math.min(Math.max(room, 2.5), 16) * Math.sqrt(api.value(2) / most), 0.7);
        return { type: "circle", shape: { cx, cy, r }, style: { fill: colour(0), opacity: 0.75 } };
      },
    }],
  };
}

// A table of counts, each row coloured by its shares; the first row is on top.
export function cells(counts, { x, y }) {
  const whole = counts.map((line) => line.reduce((a, b) => a + b, 0) || 1), last = counts.length - 1;
  const data = counts.flatMap((line, i) => line.map((count, j) => [j, last - i, count, count / whole[i]]));
  const wide = counts[0].length, few = wide <= 12;
  const names = (count) => Array.from({ length: count }, (_, i) => String(i));
  return {
    ...base({ grid: { left: 46, right: 12, top: 8, bottom: 44 } }),
    tooltip: { ...base().tooltip, formatter: ({ value }) => `${y} ${last - value[1]} ${x} ${value[0]}: ${value[2]} (${(100 * value[3]).toFixed(1)} %)` },
    xAxis: axis(x, "category", { data: names(wide), nameGap: 26, splitLine: { show: false } }),
    yAxis: axis(y, "category", { data: names(counts.length).toReversed(), nameGap: 28, splitLine: { show: false } }),
    series: [{
      type: "custom", data, dimensions: [x, y, "samples", "share"],
      renderItem: (_, api) => {
        const [cx, cy] = api.coord([api.value(0), api.value(1)]), [w, tall] = api.size([1, 1]), share = api.value(3);
        const box = { type: "rect", shape: { x: cx - w / 2, y: cy - tall / 2, width: w - 1, height: tall - 1 }, style: { fill: ramp(share) } };
        if (!few || !api.value(2)) return box;
        const text = { type: "text", style: { text: String(api.value(2)), x: cx, y: cy, align: "center", verticalAlign: "middle", fontSize: 11, fill: share > 0.6 ? "#111" : "#fff" } };
        return { type: "group", children: [box, text] };
      },
    }],
  };
}

export function asCsv(head, rows) {
  const cell = (value) => {
    let text = value === null || value === undefined ? "" : String(value);
    if (typeof value === "string" && /^[=+\-@\t]/.test(text)) text = `'${text}`; // no formula in a spreadsheet
    return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  return [head, ...rows].map((row) => row.map(cell).join(",")).join("\n") + "\n";
}
