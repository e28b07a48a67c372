// Elements, numbers and colours. Text is only ever set as text: nothing that a name says is markup.

export function h(tag, props = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (name === "style") for (const [key, said] of Object.entries(value)) made.style.setProperty(key, said);
    else if (name in made && typeof value !== "string") made[name] = value;
    else made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.flat(3).filter((child) => child !== null && child !== undefined && child !== false));
  return made;
}

export function fill(place, ...children) {
  place.replaceChildren(...children.flat(3).filter((child) => child !== null && child !== undefined && child !== false));
  return place;
}

export function select(label, options, chosen, change) {
  const list = h("select", { "aria-label": label, onchange: (event) => change(event.target.value) });
  for (const [value, text] of options) list.append(h("option", { value, selected: value === chosen }, text));
  list.value = chosen;
  return h("label", { class: "choice" }, h("span", {}, label), list);
}

export function number(value, digits = 3) {
  if (value === null || value === undefined) return "—";
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1e5) return humane(value);
  if (size < 1e-3) return value.toExponential(digits - 1);
  if (Number.isInteger(value)) return String(value);
  return size >= 1000 ? value.toFixed(0) : size >= 100 ? value.toFixed(1) : value.toFixed(digits);
}

export function humane(value) {
  if (value === null || value === undefined) return "—";
  if (Math.abs(value) < 1) return String(Number(value.toPrecision(3)));
  const units = ["", "k", "M", "G", "T", "P"];
  let at = 0;
  while (Math.abs(value) >= 1000 && at < units.length - 1) [value, at] = [value / 1000, at + 1];
  const whole = Number.isInteger(value) && Math.abs(value) < 1000;
  return `${whole ? value : value.toFixed(Math.abs(value) < 10 ? 2 : 1)}${at ? " " : ""}${units[at]}`;
}

export function bytes(value) {
  return value === null || value === undefined ? "—" : `${humane(value)}${value >= 1000 ? "" : " "}B`;
}

export function span(seconds) {
  if (seconds === null || seconds === undefined) return "—";
  if (seconds < 0) seconds = 0;
  for (const [unit, length] of [["d", 86400], ["h", 3600], ["min", 60]]) {
    if (seconds >= 2 * length) return `${Math.round(seconds / length)} ${unit}`;
  }
  return `${seconds.toFixed(seconds < 10 ? 1 : 0)} s`;
}

const NAMES = {
  test_accuracy: "test accuracy", merged_accuracy: "accuracy after the merge", validation_accuracy: "validation accuracy",
  test_f1: "macro F1", test_loss: "test loss", sent_bytes: "bytes sent", received_bytes: "bytes received",
  batches: "mini-batches", flops: "operations", train_seconds: "seconds of training", merge_seconds: "seconds of merging",
  evaluate_seconds: "seconds of measuring", consensus_distance: "distance to consensus",
  neighbourhood_distance: "distance to neighbours", lag: "rounds behind the first",
};

export function called(column) {
  return NAMES[column] ?? column.replaceAll("_", " ");
}

// Okabe and Ito's colours, told apart by colour-blind readers, on white and on black.
const LIGHT = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#b8860b", "#56b4e9", "#7a4fbf", "#555555"];
const DARK = ["#56b4e9", "#ff8c42", "#2ec49a", "#e59ac4", "#f0c945", "#9ad0f5", "#b79cf0", "#bbbbbb"];
const SHAPES = ["circle", "rect", "triangle", "diamond", "emptyCircle", "emptyRect", "emptyTriangle", "emptyDiamond"];
const DASHES = ["solid", "solid", "solid", "solid", "solid", "solid", "dashed", "dotted"];

export function dark() {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

export function colour(index) {
  const list = dark() ? DARK : LIGHT;
  return list[index % list.length];
}

// Tol's colours, for more kinds than there are above; of still more, neighbours look alike.
const MORE = ["#332288", "#88ccee", "#44aa99", "#117733", "#999933", "#ddcc77", "#cc6677", "#882255", "#aa4499", "#777777"];
const MORE_DARK = ["#7a6ae0", "#88ccee", "#44aa99", "#2a9d57", "#999933", "#ddcc77", "#cc6677", "#b5477f", "#c46fb5", "#dddddd"];

export function kind(index, count) {
  if (count <= LIGHT.length) return colour(index);
  return count <= MORE.length ? (dark() ? MORE_DARK : MORE)[index] : ramp(index / (count - 1));
}

// Black or white, whichever is read on a colour.
export function inkOn(fill) {
  const [r, g, b] = fill.startsWith("#") ? [1, 3, 5].map((at) => Number.parseInt(fill.slice(at, at + 2), 16)) : fill.match(/\d+/g).map(Number);
  return 0.3 * r + 0.59 * g + 0.11 * b > 135 ? "#111" : "#fff";
}

export const shape = (index) => SHAPES[index % SHAPES.length];
export const dash = (index) => DASHES[index % DASHES.length];

const VIRIDIS = [
  [68, 1, 84], [71, 39, 119], [62, 73, 137], [48, 103, 141], [37, 130, 142], [30, 157, 136],
  [53, 183, 120], [109, 206, 88], [181, 221, 43], [253, 231, 36],
];

export function ramp(share) {
  const at = Math.min(Math.max(share, 0), 1) * (VIRIDIS.length - 1);
  const low = Math.min(Math.floor(at), VIRIDIS.length - 2);
  const mixed = VIRIDIS[low].map((c, i) => Math.round(c + (VIRIDIS[low + 1][i] - c) * (at - low)));
  return `rgb(${mixed.join(",")})`;
}

export function ink(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

export function save(name, content, type) {
  const url = typeof content === "string" && content.startsWith("data:") ? content : URL.createObjectURL(new Blob([content], { type }));
  const link = h("a", { href: url, download: name });
  document.body.append(link);
  link.click();
  link.remove();
}
