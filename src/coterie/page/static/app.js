// The page: what is shown, which view, what keys do; it asks again when there is something new.
import { dark, fill, h } from "./dom.js";
import { source } from "./source.js";
import { Learning } from "./learning.js";
import { Peers } from "./peers.js";
import { Curves, DataView, Results, Setup } from "./views.js";

const KEYS = [
  ["1 … 5", "the views"], ["space", "play or pause"], ["← →", "a round back or on"], ["home end", "first or newest round"],
  ["esc", "close a node"], ["t", "light or dark"], ["?", "this list"],
];

class Page {
  constructor(root) {
    this.root = root;
    this.source = source();
    this.runs = new URLSearchParams(location.search).getAll("run");
    this.state = { tab: "learning", layout: "force", flow: "plain", colour: "test_accuracy", column: "test_accuracy", against: "round", band: "half", x: "linear", y: "linear", job: "" };
    this.refresh = this.refresh.bind(this);
    this.#remember();
    this.#theme(this.#stored("theme"));
  }

  #stored(key) { try { return localStorage.getItem(`coterie.${key}`); } catch { return null; } }

  #theme(name) {
    document.documentElement.dataset.theme = name ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
  }

  #remember() {
    const said = new URLSearchParams(location.hash.slice(1));
    for (const key of Object.keys(this.state)) if (said.has(key)) this.state[key] = said.get(key);
  }

  #note() {
    const said = new URLSearchParams(Object.entries(this.state).filter(([, value]) => value));
    history.replaceState(null, "", `${location.pathname}${location.search}#${said}`);
  }

  // Methods in the order of the jobs, so that each keeps its colour.
  names() {
    return [...new Set([...this.overview.jobs.map((job) => job.method), ...Object.keys(this.overview.methods)])];
  }

  // A setting of a job: its method's own, or that of all.
  setting(job, key) {
    const settings = this.overview.runs.find((run) => job.startsWith(`${run.label}:`))?.settings ?? {};
    const method = job.slice(job.indexOf(":", job.indexOf(":") + 1) + 1);
    return settings[`methods.${method}.${key}`] ?? settings[key];
  }

  async start() {
    const listed = await this.source.runs();
    if (listed.peers) return new Peers(this).start();
    if (listed.folder && !this.runs.length) return this.#choose(listed.runs);
    this.overview = await this.source.overview(this.runs);
    this.views = {
      learning: ["Network", new Learning(this)], curves: ["Curves", new Curves(this)], results: ["Results", new Results(this)],
      data: ["Data", new DataView(this)], setup: ["Set-up", new Setup(this)],
    };
    if (!(this.state.tab in this.views)) this.state.tab = "learning";
    this.pill = h("span", { class: "pill" });
    this.about = h("p", { class: "finding", id: "about" });
    this.lead = h("p", { class: "finding" });
    this.title = h("h1");
    this.tabs = h("nav", { role: "tablist" });
    this.place = h("main");
    fill(this.root, this.header(listed.folder), this.about, this.lead, this.tabs, this.place, this.helping());
    this.#keys();
    await this.refresh(false);
    this.source.follow(this.runs, (version) => this.#changed(version), (open) => this.#connected(open));
    return undefined;
  }

  header(folder) {
    const mark = h("img", { class: "mark", alt: "", src: document.querySelector("link[rel=icon]").href });
    return h("header", {}, mark, this.title, this.pill, h("span", { class: "room" }),
      folder ? h("a", { class: "note", href: location.pathname }, "all runs") : null,
      h("button", { class: "plain", onclick: () => this.turn(), title: "light or dark (t)", "aria-label": "light or dark" }, "◐"),
      h("button", { class: "plain", onclick: () => this.help.showModal(), "aria-label": "keys" }, "?"));
  }

  turn() {
    const name = dark() ? "light" : "dark";
    document.documentElement.dataset.theme = name;
    try { localStorage.setItem("coterie.theme", name); } catch { /* a file may keep nothing */ }
    this.refresh(false);
  }

  helping() {
    this.help = h("dialog", {}, h("h2", {}, "Keys"), h("table", {}, h("tbody", {}, KEYS.map(([key, does]) => h("tr", {}, h("td", {}, h("kbd", {}, key)), h("td", {}, does))))),
      h("form", { method: "dialog" }, h("button", { class: "plain" }, "close")));
    return this.help;
  }

  async refresh() {
    this.#note();
    const { overview, state } = this;
    const jobs = overview.jobs, ended = jobs.filter((job) => job.state === "done").length;
    const how = overview.live ? "running" : [...new Set(overview.runs.map((run) => run.state))].join(", ");
    this.title.textContent = overview.runs.map((run) => run.label).join(" · ");
    document.title = `${this.title.textContent} – Coterie`;
    this.pill.className = `pill ${how}`;
    this.pill.textContent = jobs.length === ended ? how : `${how}, ${ended} of ${jobs.length} jobs done`;
    fill(this.about, overview.setting.flatMap(({ what, name, view }, place) => [
      place ? "; " : "", `${place ? what.toLowerCase() : what} `, h("button", { class: "link", onclick: () => { state.tab = view; this.refresh(); } }, name)]));
    this.lead.textContent = overview.finding;
    fill(this.tabs, Object.entries(this.views).map(([key, [name]]) =>
      h("button", { role: "tab", "aria-selected": String(state.tab === key), onclick: () => { state.tab = key; this.refresh(); } }, name)));
    const [, view] = this.views[state.tab];
    if (this.place.firstChild !== view.place) fill(this.place, view.place);
    try {
      await view.show();
      this.root.dataset.version = overview.version;
    } catch (error) {
      fill(this.place, h("p", { class: "warn" }, error.message));
    }
  }

  async #changed(version) {
    if (this.busy || version === this.seen) return;
    [this.busy, this.seen] = [true, version];
    try {
      this.overview = await this.source.overview(this.runs);
      await this.refresh();
    } catch (error) {
      this.lead.textContent = error.message;
    }
    this.busy = false;
  }

  #connected(open) { if (!open) { this.pill.className = "pill stopped"; this.pill.textContent = "the server has gone"; } }

  #keys() {
    document.addEventListener("keydown", (event) => {
      if (["SELECT", "INPUT"].includes(event.target.tagName) || event.ctrlKey || event.metaKey || event.altKey || this.help.open) return;
      const learning = this.views.learning[1], tabs = Object.keys(this.views);
      const does = { " ": () => learning.toggle(), ArrowLeft: () => learning.step(-1), ArrowRight: () => learning.step(1), Home: () => learning.go(0), End: () => learning.end(), Escape: () => learning.choose(null) };
      if (event.key >= "1" && event.key <= "5") { this.state.tab = tabs[Number(event.key) - 1]; this.refresh(); }
      else if (event.key === "t") this.turn();
      else if (event.key === "?") this.help.showModal();
      else if (does[event.key] && this.state.tab === "learning" && learning.matrix && event.target.tagName !== "BUTTON") { event.preventDefault(); does[event.key](); }
    });
  }

  #choose(runs) {
    this.title = h("h1", {}, "Runs");
    const form = h("form", { class: "runs" }, h("table", {}, h("tbody", {}, runs.map(({ label, time, state, what }) => h("tr", {},
      h("td", {}, h("label", {}, h("input", { type: "checkbox", name: "run", value: label }), h("a", { href: `?run=${encodeURIComponent(label)}` }, label))),
      h("td", {}, h("span", { class: `pill ${state}` }, state)),
      h("td", { class: "text" }, what),
      h("td", { class: "faint" }, time ? new Date(time * 1000).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "short" }) : ""))))),
    h("p", {}, h("button", { class: "plain" }, "Compare the chosen ones")));
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      location.search = new URLSearchParams(new FormData(form)).toString();
    });
    fill(this.root, this.header(false), runs.length ? h("div", { class: "wide" }, form) : h("p", { class: "faint" }, "No runs in this folder."), this.helping());
  }
}

const root = document.getElementById("app");
new Page(root).start().catch((error) => fill(root, h("p", { class: "warn" }, error.message)));
