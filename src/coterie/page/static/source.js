// Where the page has its data from: a server that is asked, or what was written into the page itself.

class Server {
  live = true;

  async ask(what, given = {}) {
    const asked = new URLSearchParams();
    for (const [key, value] of Object.entries(given)) for (const each of [value].flat()) asked.append(key, each);
    const answer = await fetch(`api/${what}?${asked}`);
    const said = await answer.json();
    if (!answer.ok) throw new Error(said.error ?? answer.statusText);
    return said;
  }

  runs() { return this.ask("runs"); }
  overview(run) { return this.ask("overview", { run }); }
  job(job) { return this.ask("job", { job }); }
  matrix(job, column) { return this.ask("job", { job, column }); }
  node(job, node) { return this.ask("job", { job, node }); }
  links(job, round) { return this.ask("job", { job, round }); }

  follow(run, changed, state) {
    const asked = new URLSearchParams();
    for (const each of run) asked.append("run", each);
    const stream = new EventSource(`api/stream?${asked}`);
    stream.onmessage = (event) => changed(JSON.parse(event.data).version);
    stream.onopen = () => state(true);
    stream.onerror = () => state(false);
    return () => stream.close();
  }
}

class Inlined {
  live = false;

  constructor(data) { this.data = data; }
  async runs() { return { folder: false, runs: this.data.overview.runs.map(({ label }) => ({ label })) }; }
  async overview() { return this.data.overview; }
  #job(job) {
    if (!(job in this.data.jobs)) throw new Error("This file holds the curves of that seed, and not its nodes.");
    return this.data.jobs[job];
  }
  async job(job) { return this.#job(job).view; }
  async matrix(job, column) {
    const { rounds, columns } = this.#job(job);
    return { rounds, values: columns[column] ?? rounds.map(() => []) };
  }
  async node(job, node) {
    const { rounds, columns, confusion } = this.#job(job);
    const own = Object.entries(columns).map(([name, values]) => [name, values.map((line) => line[node] ?? null)]);
    return { node, round: rounds, columns: Object.fromEntries(own), confusion };
  }
  async links(job, round) {
    const known = this.#job(job).links;
    const told = Object.keys(known).map(Number).filter((each) => each <= round);
    return known[Math.max(...told)] ?? { round: null, bytes: null, sources: null, targets: null, down: [], away: [] };
  }
  has(job) { return job in this.data.jobs; }
  follow() { return () => {}; }
}

export function source() {
  const inside = document.getElementById("data");
  return inside ? new Inlined(JSON.parse(inside.textContent)) : new Server();
}
