// Where nodes stand: on a ring, on a grid, or where forces settle (Fruchterman and Reingold, with Barnes and Hut's tree).

export function ring(n) {
  return Array.from({ length: n }, (_, i) => [Math.sin((2 * Math.PI * i) / n), -Math.cos((2 * Math.PI * i) / n)]);
}

export function grid(n, dims) {
  const [rows, columns] = dims ?? [Math.ceil(n / Math.ceil(Math.sqrt(n))), Math.ceil(Math.sqrt(n))];
  const reach = Math.max(rows, columns) - 1 || 1;
  return Array.from({ length: n }, (_, i) => [
    (2 * (i % columns) - (columns - 1)) / reach,
    (2 * Math.floor(i / columns) - (rows - 1)) / reach,
  ]);
}

export class Forces {
  constructor(n, sources, targets) {
    this.n = n;
    this.x = new Float64Array(n);
    this.y = new Float64Array(n);
    this.sources = sources;
    this.targets = targets;
    for (let i = 0; i < n; i++) {
      const [turn, far] = [i * 2.399963, Math.sqrt((i + 0.5) / n)]; // a sunflower: even, and the same each time
      [this.x[i], this.y[i]] = [far * Math.cos(turn), far * Math.sin(turn)];
    }
    this.k = 1 / Math.sqrt(n || 1);
    this.steps = n > 3000 ? 60 : n > 600 ? 120 : 300;
    this.done = 0;
  }

  get settled() { return this.done >= this.steps || this.n < 2; }

  step() {
    const { n, x, y, k } = this;
    const dx = new Float64Array(n), dy = new Float64Array(n);
    const tree = plant(x, y, n);
    for (let i = 0; i < n; i++) repel(tree, i, x, y, k * k, dx, dy);
    for (let e = 0; e < this.sources.length; e++) {
      const a = this.sources[e], b = this.targets[e];
      const ex = x[a] - x[b], ey = y[a] - y[b];
      const pull = Math.hypot(ex, ey) / k;
      dx[a] -= ex * pull; dy[a] -= ey * pull;
      dx[b] += ex * pull; dy[b] += ey * pull;
    }
    const warmth = 0.12 * (1 - this.done / this.steps) ** 1.5 + 0.001;
    for (let i = 0; i < n; i++) {
      dx[i] -= x[i] * 0.6 * k; dy[i] -= y[i] * 0.6 * k; // a little towards the middle, so that parts stay in sight
      const far = Math.hypot(dx[i], dy[i]) || 1;
      const go = Math.min(far, warmth) / far;
      x[i] += dx[i] * go; y[i] += dy[i] * go;
    }
    this.done++;
  }

  // From -1 to 1 in both directions, so that the picture fills its place, whatever its form.
  places() {
    const [x, y] = [this.x, this.y].map((line) => {
      const low = line.reduce((a, b) => Math.min(a, b), Infinity), high = line.reduce((a, b) => Math.max(a, b), -Infinity);
      return Array.from(line, (at) => (high > low ? (2 * at - low - high) / (high - low) : 0));
    });
    return x.map((at, i) => [at, y[i]]);
  }
}

function plant(x, y, n) {
  let reach = 1e-9;
  for (let i = 0; i < n; i++) reach = Math.max(reach, Math.abs(x[i]), Math.abs(y[i]));
  const root = cell(0, 0, reach);
  for (let i = 0; i < n; i++) insert(root, i, x, y, 0);
  return root;
}

const cell = (cx, cy, half) => ({ cx, cy, half, mass: 0, mx: 0, my: 0, node: -1, parts: null });

function insert(at, i, x, y, depth) {
  for (;;) {
    at.mx += x[i]; at.my += y[i]; at.mass++;
    if (at.mass === 1) { at.node = i; return; }
    if (depth > 24) return; // two in one place
    if (!at.parts) {
      at.parts = [null, null, null, null];
      const old = at.node;
      at.node = -1;
      insert(part(at, x[old], y[old]), old, x, y, depth + 1);
    }
    at = part(at, x[i], y[i]);
    depth++;
  }
}

function part(at, px, py) {
  const which = (px > at.cx ? 1 : 0) + (py > at.cy ? 2 : 0);
  const h = at.half / 2;
  at.parts[which] ??= cell(at.cx + (which & 1 ? h : -h), at.cy + (which & 2 ? h : -h), h);
  return at.parts[which];
}

function repel(root, i, x, y, k2, dx, dy) {
  const open = [root];
  while (open.length) {
    const at = open.pop();
    if (!at || at.node === i) continue;
    const ex = x[i] - at.mx / at.mass, ey = y[i] - at.my / at.mass;
    const d2 = ex * ex + ey * ey + 1e-6 * k2;
    if (at.parts && at.half * at.half * 4 > 0.8 * d2) { open.push(...at.parts); continue; }
    const push = (k2 * at.mass) / d2;
    dx[i] += ex * push; dy[i] += ey * push;
  }
}
