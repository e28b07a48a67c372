"""Tables of text, printed on the terminal or in Markdown."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from rich import box
from rich.table import Table
from rich.text import Text


@dataclass(frozen=True)
class Sheet:
    """A table of text: headings, and rows whose first cell names them; rows numbered in `faint` are printed dim."""

    title: str
    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    notes: Sequence[str] = ()
    faint: Collection[int] = ()

    def render(self, left_out: Collection[str] = ()) -> Table:
        """The table for the terminal, without the columns `left_out`, which the caption names."""
        said = [*self.notes, *([f"No room for: {', '.join(left_out)}."] if left_out else [])]
        # Text, because a name may hold square brackets, which are markup to rich.
        caption = Text(" ".join(said)) if said else None
        table = Table(title=Text(self.title), caption=caption, box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
        table.title_justify = table.caption_justify = "left"
        shown = [i for i, name in enumerate(self.headings) if name not in left_out]
        for i in shown:
            table.add_column(self.headings[i], justify="right" if i else "left", overflow="fold")
        for number, row in enumerate(self.rows):
            table.add_row(*(Text(row[i]) for i in shown), style="dim" if number in self.faint else None)
        return table

    def markdown(self) -> str:
        """The table in Markdown, with the title above and the notes below."""
        rule = [":--", *["--:"] * (len(self.headings) - 1)]
        plain = [[_plain(cell) for cell in row] for row in (self.headings, *self.rows)]
        lines = ["| " + " | ".join(row) + " |" for row in (plain[0], rule, *plain[1:])]
        return "\n".join([f"**{_plain(self.title)}**", "", *lines, *(f"\n{_plain(n)}" for n in self.notes)]) + "\n"


def _plain(text: str) -> str:
    """Text escaped for a cell of a Markdown table."""
    for special, shown in (("&", "&amp;"), ("<", "&lt;"), ("|", r"\|"), ("*", r"\*"), ("_", r"\_"), ("`", r"\`")):
        text = text.replace(special, shown)
    return " ".join(text.split())
