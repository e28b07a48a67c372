"""How a budget of epochs is shared out: who trains how many of them when."""

from collections.abc import Callable, Iterator
from typing import Any

from coterie.app import flags
from coterie.app.catalogue import METHODS, room
from coterie.app.run_flags import run_flags
from coterie.app.terminal import console
from coterie.config.configuration import Configuration, Method
from coterie.config.layers import layered
from coterie.config.networks import network
from coterie.network.graph import Graph
from coterie.protocols import Protocol


def plan(experiment: Configuration) -> list[str]:
    """The plan of each method that has a share of a budget, in words."""
    budgets = {name: own.get("budget", experiment.budget) for name, own in experiment.methods.items()}
    budgets = budgets or dict.fromkeys(experiment.resolved, experiment.budget)
    shared = [(name, method, budget) for name, method in experiment.resolved.items() if (budget := budgets[name])]
    return [line for each in shared for line in _lines(*each)]


def print_plan(experiment: Configuration) -> None:
    """Show it."""
    for line in plan(experiment):
        console().print(line, soft_wrap=True, highlight=False)


def show_command(tokens: list[str], show: Callable[[str, str], int]) -> tuple[Callable[..., int], list[str]]:
    """The command `show`: with settings behind a method's name it shows that method's plan, too."""
    if len(tokens) < 3 or any(word.startswith("-") for word in tokens[:2]) or room(tokens[0]) != METHODS:
        return show, tokens
    known, base = run_flags(["--methods", *tokens[1:]])
    known = [flag for flag in known if flag.path != ("methods",)]
    typed = flags.joined(tokens, known)
    flags.check(typed, known)

    def planned(where: str, name: str, **given: Any) -> int:
        experiment = layered(None, {**flags.settings(known, given, base), "methods": name})
        show(where, name)
        print_plan(experiment)
        return 0

    words = [flags.positional("where", "method"), flags.positional("name", "the method's name")]
    return flags.command(planned, show.__doc__ or "", words, known), typed


def _lines(name: str, method: Method, budget: int) -> Iterator[str]:
    protocol: Protocol = method.choice("protocol").make()
    graph = Graph.from_edges(1, []) if method.pooled else network(method, method.seeds[0]).graph(1)
    each, behind, turns = method.epochs or 0, 0, list[str]()
    for round in range(1, method.rounds + 1):
        for nodes in protocol.trainers(graph, round):
            who = f"node {nodes[0]}" if len(nodes) == 1 else "all nodes"
            turns.append(f"round {round} {who} {behind + 1}\u2013{behind + each}")
            behind += each
    left = f", {budget - behind} left over" if budget > behind else ""
    yield f"{name}: {budget} epochs in {len(turns)} turns of {each}{left}"
    shown = turns if len(turns) <= 12 else [*turns[:8], "\u2026", *turns[-2:]]
    yield f"  epochs by turn: {', '.join(shown)}"
