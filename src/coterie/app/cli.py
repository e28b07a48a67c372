"""The command line. Heavy modules are imported where they are used, so that `coterie --help` answers at once."""

import os
import sys
from collections.abc import Callable, Sequence
from typing import Annotated, Literal

from cyclopts import App, CycloptsError, Parameter, UnusedCliTokensError

from coterie import waiting
from coterie.app import formats
from coterie.app.convergence_view import convergence
from coterie.app.record_commands import compare, export, plot
from coterie.app.run_commands import RUN, UP, collect, resume, run_command, up_command
from coterie.app.study_view import study
from coterie.app.terminal import complain, console
from coterie.app.watch_commands import report, watch
from coterie.errors import CoterieError
from coterie.version import __version__

HELP = """Decentralised federated learning on any graph, with no server.

For example:
  coterie run                                      the default experiment
  coterie run --rule dechw --topology ba --nodes 50
  coterie run my.toml --rounds 100 --seeds 0-4
  coterie list rules                               what there is to choose from
  coterie compare runs/a runs/b --json             what is shown as JSON or CSV (--csv), for other programs
"""

PEER = """Be a peer on a real network: one machine, its own data, and the neighbours it knows.

For example:
  coterie peer init --name alice --listen 0.0.0.0:7001    a key, a certificate, and the card alice.peer
  coterie peer invite                                     a ticket: one line for one neighbour
  coterie peer join coterie-ticket-…                      at the neighbour: both know each other now
  coterie peer run my.toml --data alice.npz               train with whoever is there
  coterie peer status                                     neighbours, rounds, lag, refusals
  coterie peer export model.safetensors                   the model, for plain PyTorch"""

GRAPH = """Look at a network before training on it.

For example:
  coterie graph ba --nodes 50 --m 3 --draw g.png
  coterie graph ba --nodes 200 --m 4 --estimates"""

PARTITION = """Look at how unevenly a partition deals out the data.

For example:
  coterie partition dirichlet --alpha 0.5 --nodes 20 --draw p.png"""

DYNAMICS = """Watch how averaging shrinks random weights and brings nodes together, before any training.

For example:
  coterie dynamics ba --nodes 1000 --m 8 --rounds 100 --noise 0.001 --draw d.png"""

THEORY = """Hold the bounds of theory beside the gap to the optimum, round by round, for linear models.

Settings are those of `coterie run`:
  coterie theory my.toml --methods continuous-ring,star"""


def main(argv: Sequence[str] | None = None) -> int:
    """Do what the arguments say. 0: done; 2: the user can mend it; 130: interrupted."""
    tokens = list(sys.argv[1:] if argv is None else argv)
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # processes are the only parallelism: on a busy machine threads wait
    try:
        _greet(tokens)
        return _call(tokens)
    except UnusedCliTokensError as error:
        return complain(f"unexpected argument {(error.unused_tokens or [''])[0]!r}. `coterie --help` tells more.")
    except (CycloptsError, CoterieError) as error:
        return complain(str(error))
    except KeyboardInterrupt:
        return complain("interrupted", code=130)
    except BrokenPipeError:  # the reader has seen enough, as in `coterie list rules | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 0
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        return complain(f"{error.strerror or error}{where}")


def _greet(tokens: list[str]) -> None:
    """Say at once that something happens, before what is slow is imported: in a log only what will run for long."""
    if "torch" in sys.modules or {"--help", "-h"} & set(tokens):
        return
    long = tokens[:2] == ["peer", "run"] or (tokens[:1] and tokens[0] in LONG)
    if long or (tokens and tokens[0] in SLOW and sys.stderr.isatty()):
        waiting.tell("loading")


def _call(tokens: list[str]) -> int:
    tokens = formats.take(tokens)
    command, rest = tokens[:1], tokens[1:]
    try:
        if not command or command[0] not in FLAGGED:
            return _app({})(tokens) or 0
        made, typed = FLAGGED[command[0]](rest)
        return _app({command[0]: made})([*command, *typed]) or 0
    finally:
        formats.take([])  # the next command line of this process asks for its own


def _app(made: dict[str, Callable[..., int]]) -> App:
    """All commands; those that were made for these arguments have their flags."""
    app = App(
        name="coterie",
        help=HELP,
        version=__version__,
        help_format="plaintext",
        print_error=False,
        exit_on_error=False,
        suppress_keyboard_interrupt=False,
        result_action="return_value",
    )
    for place, (name, function) in enumerate(COMMANDS.items()):
        app.command(made.get(name, function), name=name, sort_key=place)
    app.command(_peer())
    return app


def _graph_command(tokens: list[str]) -> tuple[Callable[..., int], list[str]]:
    from coterie.app.views import graph_command

    return graph_command(tokens, GRAPH)


def _partition_command(tokens: list[str]) -> tuple[Callable[..., int], list[str]]:
    from coterie.app.views import partition_command

    return partition_command(tokens, PARTITION)


def _dynamics_command(tokens: list[str]) -> tuple[Callable[..., int], list[str]]:
    from coterie.app.dynamics_view import dynamics_command

    return dynamics_command(tokens, DYNAMICS)


def _theory_command(tokens: list[str]) -> tuple[Callable[..., int], list[str]]:
    from coterie.app.theory_view import theory_command

    return theory_command(tokens, THEORY)


def _sweep_command(tokens: list[str]) -> tuple[Callable[..., int], list[str]]:
    from coterie.app.sweep_command import sweep_command

    return sweep_command(tokens)


def _show_command(tokens: list[str]) -> tuple[Callable[..., int], list[str]]:
    from coterie.app.plan import show_command

    return show_command(tokens, show)


def list_parts(
    room: Annotated[str | None, Parameter(help="rules, topologies, partitions, …; all rooms if left out")] = None, /
) -> int:
    """List what there is to choose from."""
    from coterie.app import catalogue

    where = None if room is None else catalogue.room(room)
    if not formats.write(catalogue.rows(where)):
        console().print(catalogue.rooms() if where is None else catalogue.inside(where))
    return 0


def show(
    room: Annotated[str, Parameter(help="rule, topology, partition, …")],
    name: Annotated[str, Parameter(help="the part's name, or file.py:Name for your own")],
    /,
) -> int:
    """Show what a part does: its equation, its settings, its paper; with --budget E a method's plan, too."""
    from coterie.app import catalogue

    where = catalogue.room(room)
    if not formats.asked or not formats.write(catalogue.about(where, name)):
        console().print(catalogue.show(where, name), crop=False)
    return 0


def schema() -> int:
    """Print a JSON schema of configuration files, with every part's settings, for editors."""
    from json import dumps

    from coterie.config.schema import schema as made

    print(dumps(made(), indent=2, default=str))
    return 0


def completion(
    shell: Annotated[Literal["bash", "zsh", "fish"], Parameter(help="bash, zsh or fish")],
    /,
) -> int:
    """Print what completes commands and flags in a shell: `source <(coterie completion bash)`."""
    print(
        _app({name: make([])[0] for name, make in FLAGGED.items() if name != "show"}).generate_completion(shell=shell)
    )
    return 0


def _peer() -> App:
    """The commands of a single peer."""
    from coterie.app import joining_commands, peer_commands, peer_status

    app = App(name="peer", help=PEER, help_format="plaintext", sort_key=len(COMMANDS))
    for command in (
        peer_commands.init,
        joining_commands.invite,
        joining_commands.join,
        peer_commands.run,
        peer_commands.export,
        peer_commands.add,
        joining_commands.introduce,
        joining_commands.approve,
        joining_commands.refuse,
        peer_commands.remove,
        peer_commands.move,
        peer_commands.rotate,
    ):
        app.command(command)
    app.command(peer_status.status)
    app.command(peer_status.doctor)
    return app


LONG = ("run", "up", "resume", "study", "sweep")
SLOW = ("show", "graph", "partition", "dynamics", "theory", "compare", "plot", "convergence", "export", "collect")
"""Commands that import what takes a second or two."""

FLAGGED = {
    "run": run_command,
    "up": up_command,
    "show": _show_command,
    "graph": _graph_command,
    "partition": _partition_command,
    "dynamics": _dynamics_command,
    "theory": _theory_command,
    "sweep": _sweep_command,
}
"""Commands whose flags depend on the parts they name."""


def _stub(help: str) -> Callable[[], int]:
    """A command without flags in place of one that was not called, to be listed in the help."""

    def stand_in() -> int:
        raise AssertionError("made when it is called")

    stand_in.__doc__ = help
    return stand_in


COMMANDS: dict[str, Callable[..., int]] = {
    "run": _stub(RUN),
    "up": _stub(UP),
    "resume": resume,
    "watch": watch,
    "report": report,
    "compare": compare,
    "plot": plot,
    "convergence": convergence,
    "export": export,
    "list": list_parts,
    "show": show,
    "graph": _stub(GRAPH),
    "partition": _stub(PARTITION),
    "dynamics": _stub(DYNAMICS),
    "theory": _stub(THEORY),
    "sweep": _stub("Run an experiment for every combination of some settings."),
    "study": study,
    "schema": schema,
    "completion": completion,
    "collect": collect,
}
