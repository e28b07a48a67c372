"""The command that plays the early stage of training on a network: averaging and noise, no data."""

from collections.abc import Callable
from typing import Any

from coterie.app import flags
from coterie.app.flags import Flag
from coterie.app.run_flags import experiment_flags
from coterie.app.terminal import console, print_facts
from coterie.app.views import _about, _picture
from coterie.config.configuration import Configuration
from coterie.errors import CoterieError
from coterie.parts import names

_NODES = 256


def dynamics_command(tokens: list[str], help: str) -> tuple[Callable[..., int], list[str]]:
    """The command `dynamics` for these arguments, and the arguments as cyclopts takes them."""
    fields = {f.path[0]: f for f in experiment_flags({})}
    own = [
        Flag("--nodes", ("nodes",), int, _NODES, "how many nodes", flags.EVERYDAY),
        Flag("--dimensions", ("dimensions",), int, 1000, "parameters of a node", flags.EVERYDAY),
        Flag("--rounds", ("rounds",), int, 100, "how many rounds", flags.EVERYDAY),
        Flag("--noise", ("noise",), float, 0.001, "standard deviation of what training adds", flags.EVERYDAY),
        Flag("--init", ("init",), float, 1.0, "standard deviation at the start", flags.EVERYDAY),
        *(fields[key] for key in ("links", "presence", "outage", "absence")),
        Flag("--seed", ("seed",), int, 0, "which draw", flags.EVERYDAY),
        Flag("--draw", ("draw",), str, None, "picture to write (png, pdf or svg)", flags.EVERYDAY, "FILE"),
    ]
    known, typed = _about("topology", tokens, own)
    flags.check(typed, known)

    def dynamics(family: str, **given: Any) -> int:
        from coterie.config.networks import mixing, network
        from coterie.network.dynamics import simulate
        from coterie.network.mixing import own_weights
        from coterie.report.dynamics import draw_dynamics

        settings = {"nodes": _NODES, "rounds": 100} | flags.settings(known, given, {})
        seed, picture = flags.whole("seed", settings.pop("seed", 0)), _picture(settings.pop("draw", None))
        dimensions = flags.whole("dimensions", settings.pop("dimensions", 1000))
        noise, init = (_number(key, settings.pop(key, usual)) for key, usual in (("noise", 0.001), ("init", 1.0)))
        topology = {"name": family, **settings.pop("topology", {})}
        (experiment,) = Configuration(**settings, topology=topology).resolved.values()
        chances = {key: getattr(experiment, key) for key in ("links", "presence", "outage", "absence")}
        graphs, weights = network(experiment, seed), mixing(experiment)
        if graphs.changes:
            raise CoterieError("the early stage is played on one network", cure="Choose a topology that stays.")
        if weights == "metropolis" and experiment.faults(0).fails:
            cure = "Let nothing fail, or set mixing to uniform."
            raise CoterieError("the early stage with metropolis weights is played without failures", cure=cure)
        graph = graphs.graph(1)
        own_weight = own_weights(graph, weights)
        found = simulate(
            graph, dimensions, experiment.rounds, noise=noise, init=init, seed=seed, own=own_weight, **chances
        )
        print_facts(found.facts())
        if found.stabilisation is None and noise:
            console().print(f"σ_an has not come to rest within {found.rounds:,} rounds: ask for more with --rounds")
        if picture:
            draw_dynamics(found, picture, f"{family}, {experiment.nodes:,} nodes")
            console().print(f"drawn to {picture}", soft_wrap=True)
        return 0

    family = flags.positional("family", f"a topology: {', '.join(names('topologies'))}")
    return flags.command(dynamics, help, [family], known), typed


def _number(name: str, value: Any) -> float:
    try:
        return float(value)
    except ValueError:
        raise CoterieError(name, expected="a number", got=repr(value)) from None
