// Tables that can be sorted by a click on a heading.
import { fill, h } from "./dom.js";

const UNITS = { B: 1, kB: 1e3, MB: 1e6, GB: 1e9, TB: 1e12, PB: 1e15 };

function worth(text) {
  const found = /^(-?[\d.]+(?:e[+-]?\d+)?)\s*([kMGTP]?B)?/.exec(String(text));
  return found ? Number(found[1]) * (UNITS[found[2]] ?? 1) : null;
}

// rows: lists of texts; faint: which rows stand last and dim
export function table({ title, headers, rows, notes = [], bounds = [] }) {
  const body = h("tbody");
  let by = null, down = true;
  const heads = headers.map((name, at) =>
    h("th", { scope: "col" }, h("button", { onclick: () => sort(at), title: "sort" }, name)));
  function sort(at) {
    down = by === at ? !down : true;
    by = at;
    heads.forEach((head, i) => head.setAttribute("aria-sort", i !== at ? "none" : down ? "descending" : "ascending"));
    show();
  }
  function show() {
    const order = rows.map((row, i) => [row, i]);
    if (by !== null) {
      const numbers = rows.some((row) => worth(row[by]) !== null) && by > 0;
      order.sort(([a, i], [b, j]) => {
        const [u, v] = numbers ? [worth(a[by]), worth(b[by])] : [a[by], b[by]];
        if (u === v) return i - j;
        if (u === null || v === null) return u === null ? 1 : -1;
        return (u < v ? -1 : 1) * (down ? -1 : 1);
      });
    }
    fill(body, order.map(([row, i]) => h("tr", { class: bounds[i] ? "bound" : null },
      row.map((cell, at) => (at ? h("td", {}, cell) : h("th", { scope: "row" }, cell))))));
  }
  show();
  const made = h("table", {}, title ? h("caption", {}, title) : null, h("thead", {}, h("tr", {}, heads)), body);
  return h("div", { class: "wide" }, made, notes.map((note) => h("p", { class: "note" }, note)));
}

export function facts(pairs) {
  return h("dl", { class: "facts" }, pairs.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
}
