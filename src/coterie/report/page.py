"""The HTML report of a run: one self-contained page with the settings, the table, the figures, and how to read them."""

import base64
import json
from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import Any

import polars as pl

from coterie.report.curves import plot_all
from coterie.report.measures import plot_measures
from coterie.report.statistics import REFERENCE, further, methods, summary
from coterie.report.tables import cells, headers, notes, title

CAPTIONS = {
    "accuracy": "Accuracy on the test set after each evaluated round, mean over nodes.",
    "loss": "Loss on the test set after each evaluated round, mean over nodes.",
    "accuracy_by_bytes": "The same accuracy against what a node had sent by then: the price of communication.",
    "spread": "Every node at the last round: a good mean can hide nodes that learnt little.",
    "parameter_spread": "How parameters are spread after training: over a node's parameters and over the nodes.",
    "steps": "How far training and aggregation move a node in a round, and whether in the same direction.",
    "epochs": "The validation loss after each epoch of training.",
    "told": "What the rules tell of themselves at the end of a round.",
}

STYLE = """
:root { color-scheme: light dark; --ink: #222; --soft: #666; --line: #ddd; --paper: #fff; --tint: #f5f5f3; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e6e3; --soft: #a3a3a0; --line: #3a3a3a; --paper: #181818; --tint: #232323; }
}
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1.5rem 1rem 4rem; max-width: 62rem; color: var(--ink); background: var(--paper);
  font: 1rem/1.55 system-ui, sans-serif; overflow-wrap: break-word; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: 0 0 .5rem; }
h2 { font-size: 1.15rem; margin: 2.5rem 0 .5rem; }
p, li, dd { max-width: 44rem; }
.lead { font-size: 1.1rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .92rem; }
caption { text-align: left; color: var(--soft); padding-bottom: .5rem; }
th, td { padding: .35rem .75rem; text-align: right; white-space: nowrap; border-bottom: 1px solid var(--line); }
th:first-child { text-align: left; padding-left: 0; }
tbody th { font-weight: 600; }
tr.bound { color: var(--soft); font-style: italic; }
.note, figcaption { color: var(--soft); font-size: .9rem; }
.figures { display: grid; gap: 1.5rem; grid-template-columns: repeat(auto-fit, minmax(min(100%, 27rem), 1fr)); }
figure { margin: 0; }
img { width: 100%; height: auto; background: #fff; border: 1px solid var(--line); border-radius: 6px; padding: .5rem; }
dt { font-weight: 600; margin-top: .6rem; }
dd { margin: 0; }
details { margin: 1rem 0; }
summary { cursor: pointer; font-weight: 600; }
pre { overflow-x: auto; padding: .75rem; background: var(--tint); border-radius: 6px; font-size: .85rem; }
.environment td { text-align: left; white-space: pre-wrap; }
@media print { details > * { display: block; } }
"""


def write_report(
    records: pl.DataFrame,
    folder: Path,
    title: str,
    config_toml: str,
    environment: Mapping[str, Any],
    reference: str = REFERENCE,
    measures: pl.DataFrame | None = None,
) -> Path:
    """Write `report.html`, which needs no other file, with `summary.csv` and the figures beside it."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    table = summary(records, reference=reference)
    table.write_csv(folder / "summary.csv")
    figures = plot_all(records, folder, reference)
    if measures is not None:
        figures += plot_measures(measures, folder)
    path = folder / "report.html"
    path.write_text(_page(records, table, figures, title, config_toml, environment), encoding="utf-8")
    return path


def _page(
    records: pl.DataFrame,
    table: pl.DataFrame,
    figures: list[Path],
    heading: str,
    config_toml: str,
    environment: Mapping[str, Any],
) -> str:
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(heading)}</title>
<style>{STYLE}</style>
</head>
<body>
<header>
<h1>{escape(heading)}</h1>
<p class="lead">{escape(_finding(table))}</p>
</header>
<main>
<section>
<h2>What was run</h2>
<p>{escape(_what_was_run(records, table))}</p>
</section>
<section>
<h2>Results</h2>
{_table(table)}
</section>
<section>
<h2>Figures</h2>
<div class="figures">
{"".join(_figure(path) for path in figures)}</div>
</section>
<section>
<h2>How to read the numbers</h2>
{_legend(table)}
</section>
<section>
<h2>To run it again</h2>
<details><summary>Configuration</summary><pre><code>{escape(config_toml)}</code></pre></details>
<details><summary>Environment</summary>{_environment(environment)}</details>
</section>
</main>
</body>
</html>
"""


def _finding(table: pl.DataFrame) -> str:
    """The result in one sentence; it claims no winner where the intervals of the first two overlap."""
    rows = table.filter(~pl.col("bound") & pl.col("accuracy").is_not_null()).rows(named=True)
    if not rows:
        rows = table.filter(pl.col("accuracy").is_not_null()).rows(named=True)
    if not rows:
        return "No accuracy was recorded." if not further(table.columns) else "The models were judged by other metrics."
    first = f"{rows[0]['method']} reaches a mean test accuracy of {_accuracy(rows[0])}"
    bound = table.filter("bound", pl.col("accuracy").is_not_null()).rows(named=True)
    ceiling = f" {bound[0]['method']}, the bound, reaches {_accuracy(bound[0])}." if bound and rows != bound else ""
    if len(rows) == 1:
        return f"{first}.{ceiling}"
    gap = rows[0]["accuracy"] - rows[1]["accuracy"]
    halves = [row["accuracy_ci"] for row in rows[:2]]
    if None in halves:
        doubt = "; without several seeds for both, their order may be chance"
    else:
        doubt = "; their 95 % intervals overlap" if gap <= sum(halves) else ""
    return f"{first}, followed by {rows[1]['method']} with {_accuracy(rows[1])}{doubt}.{ceiling}"


def _accuracy(row: dict[str, Any]) -> str:
    half = row["accuracy_ci"]
    return f"{row['accuracy']:.3f}" + ("" if half is None else f" ± {half:.3f}")


def _what_was_run(records: pl.DataFrame, table: pl.DataFrame) -> str:
    names, evaluated = methods(records), records["round"].unique().sort().to_list()
    compared = table.filter(~pl.col("bound")) if table.height > 1 else table
    nodes, seeds, last = (_range(compared[c].to_list()) for c in ("nodes", "seeds_run", "round"))
    return (
        f"{len(names)} method{'s' if len(names) > 1 else ''}: {', '.join(names)}. Nodes: {nodes}. Seeds: {seeds}. "
        f"Last round: {last}. Evaluated rounds: {', '.join(map(str, evaluated))}."
    )


def _range(values: list[int]) -> str:
    return f"{values[0]}" if min(values) == max(values) else f"{min(values)} to {max(values)}"


def _table(table: pl.DataFrame) -> str:
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in headers(table))
    body = "".join(_row(row, bound) for row, bound in zip(cells(table), table["bound"], strict=True))
    said = "".join(f'<p class="note">{escape(note)}</p>\n' for note in notes(table))
    return (
        f'<div class="wide"><table>\n<caption>{escape(title(table))}</caption>\n'
        f"<thead><tr>{head}</tr></thead>\n<tbody>\n{body}</tbody>\n</table></div>\n{said}"
    )


def _row(row: list[str], bound: bool) -> str:
    opened = '<tr class="bound">' if bound else "<tr>"
    numbers = "".join(f"<td>{escape(cell)}</td>" for cell in row[1:])
    return f'{opened}<th scope="row">{escape(row[0])}</th>{numbers}</tr>\n'


def _figure(path: Path) -> str:
    metric = path.stem.removeprefix("test_").replace("_", " ")
    caption = escape(CAPTIONS.get(path.stem, f"The metric {metric} on the test set, mean over nodes."))
    source = "data:image/png;base64," + base64.b64encode(path.read_bytes()).decode("ascii")
    return f'<figure><img alt="{caption}" src="{source}"><figcaption>{caption}</figcaption></figure>\n'


def _legend(table: pl.DataFrame) -> str:
    reference = table["reference"][0]
    whose = f"{reference}'s" if table["bound"].any() else f"the best method's ({reference}'s)"
    terms = {
        "accuracy": "The mean over the nodes of a seed, then over seeds, ± the half-width of Student's 95 % confidence "
        "interval over seeds. Nodes of one run learn from one another, so only seeds count as independent.",
        "spread": "The standard deviation of accuracy over the nodes of a seed, averaged over seeds.",
        "to 80 %": "The first evaluated round at which the mean accuracy of a seed reaches "
        f"80 % of {whose} last accuracy, averaged over the seeds that reach it. Rounds between two evaluations "
        "are not seen, so it is an upper estimate.",
        "macro F1, loss and further metrics": "On the test set at the last round, averaged as the accuracy is.",
        "sent/node, sent in all": "Bytes sent up to the last round: the mean over nodes, and the sum over all of them.",
    }
    items = "".join(f"<dt>{escape(name)}</dt><dd>{escape(text)}</dd>\n" for name, text in terms.items())
    return f"<dl>\n{items}</dl>"


def _environment(environment: Mapping[str, Any]) -> str:
    rows = "".join(
        f'<tr><th scope="row">{escape(str(name))}</th><td>{escape(_value(value))}</td></tr>\n'
        for name, value in environment.items()
    )
    return f'<div class="wide"><table class="environment"><tbody>\n{rows}</tbody></table></div>'


def _value(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, default=str, indent=1, ensure_ascii=False)
