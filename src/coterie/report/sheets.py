"""A table of words and numbers: on the terminal, and in Markdown."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from rich import box
from rich.table import Table
from rich.text import Text


@dataclass(frozen=True)
class Sheet:
    """Rows under headings, the first column naming the row; `faint` are the numbers of rows that step back."""

    title: str
    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    notes: Sequence[str] = ()
    faint: Collection[int] = ()

    def render(self, left_out: Collection[str] = ()) -> Table:
        """For the terminal, without the columns left out, which the caption names."""
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
        """A Markdown table with the title above and the notes below."""
        rule = [":--", *["--:"] * (len(self.headings) - 1)]
        plain = [[_plain(cell) for cell in row] for row in (self.headings, *self.rows)]
        lines = ["| " + " | ".join(row) + " |" for row in (plain[0], rule, *plain[1:])]
        return "\n".join([f"**{_plain(self.title)}**", "", *lines, *(f"\n{_plain(n)}" for n in self.notes)]) + "\n"


def _plain(text: str) -> str:
    """Text that Markdown shows as it is: no cell ends early, no tag opens."""
    for special, shown in (("&", "&amp;"), ("<", "&lt;"), ("|", r"\|"), ("*", r"\*"), ("_", r"\_"), ("`", r"\`")):
        text = text.replace(special, shown)
    return " ".join(text.split())
