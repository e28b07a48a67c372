"""The command that holds bounds of theory beside what a method does."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from coterie.app import flags
from coterie.app.run_flags import run_flags
from coterie.app.terminal import console, print_facts
from coterie.config.layers import layered


def theory_command(tokens: list[str], help: str) -> tuple[Callable[..., int], list[str]]:
    """The command `theory` for these arguments, and the arguments as cyclopts takes them."""
    known, base = run_flags(tokens)
    typed = flags.joined(tokens, known)
    flags.check(typed, known)

    def theory(file: str | None = None, **given: Any) -> int:
        from coterie.report.theory import theory_sheet
        from coterie.runs.theory import theory as found

        what = found(layered(Path(file) if file else None, flags.settings(known, given, base)))
        alike: dict[tuple[tuple[str, float], ...], list[str]] = {}
        for (method, seed), constants in what.constants.items():
            alike.setdefault(tuple(constants.facts().items()), []).append(f"{method}, seed {seed}")
        for facts, whose in alike.items():
            console().print("; ".join(whose))
            print_facts(dict(facts))
        console().print(theory_sheet(what.gaps).render())
        return 0

    file = flags.positional("file", "a TOML file with settings (else the default experiment)", None)
    return flags.command(theory, help, [file], known), typed
