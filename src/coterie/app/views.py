"""Commands that look at one part before anything is trained: a network, a partition."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from coterie.app import flags
from coterie.app.flags import Flag
from coterie.app.terminal import console, print_facts
from coterie.config.slots import SLOTS, as_table, choice, resolve
from coterie.errors import CoterieError
from coterie.parts import names

NODES = 20
"""How many nodes a network has if nobody says."""


def graph_command(tokens: list[str], help: str) -> tuple[Callable[..., int], list[str]]:
    """The command `graph` for these arguments, and the arguments as cyclopts takes them."""
    own = [
        Flag("--nodes", ("nodes",), int, NODES, "how many nodes", flags.EVERYDAY),
        Flag("--seed", ("seed",), int, 0, "which draw", flags.EVERYDAY),
        Flag("--round", ("round",), int, 1, "which round, if the network changes", flags.EVERYDAY),
        Flag("--draw", ("draw",), str, None, "picture to write (png, pdf or svg)", flags.EVERYDAY, "FILE"),
        Flag("--estimates", ("estimates",), bool, False, "what nodes could know of the gain", flags.EVERYDAY),
    ]
    known, typed = _about("topology", tokens, own)
    flags.check(typed, known)

    def graph(family: str, **given: Any) -> int:
        from coterie.config.networks import Drawing, mixing, network
        from coterie.config.networks import family as family_of
        from coterie.network.mixing import own_weights
        from coterie.report.network import describe, draw_graph

        settings = flags.settings(known, given, {})
        seed, picture = flags.whole("seed", settings.pop("seed", 0)), _picture(settings.pop("draw", None))
        estimates, number = settings.pop("estimates", False), flags.whole("round", settings.pop("round", 1))
        if number < 1:
            raise CoterieError("round", expected="at least 1", got=number)
        topology = resolve("topology", {**settings.pop("topology", {}), "name": family})
        drawing = Drawing(1, number, topology)
        nodes = flags.whole("nodes", settings.pop("nodes", family_of(drawing).size or NODES))
        if nodes < 1:
            raise CoterieError("nodes", expected="at least 1", got=nodes)
        experiment = replace(drawing, nodes=nodes)
        drawn = network(experiment, seed).graph(number)
        own_weight = own_weights(drawn, mixing(experiment))
        facts: dict[str, Any] = dict(describe(drawn, own=own_weight))
        if estimates:
            from coterie.runs.gain_table import gain_table

            if mixing(experiment) == "metropolis":
                raise CoterieError("with metropolis weights the gain is √n", cure="There is nothing to estimate but n.")
            facts |= gain_table(drawn, family_of(experiment), seed)
        print_facts(facts)
        if picture:
            draw_graph(drawn, picture, own_weight)
            console().print(f"drawn to {picture}", soft_wrap=True)
        return 0

    family = flags.positional("family", f"a topology: {', '.join(names('topologies'))}")
    return flags.command(graph, help, [family], known), typed


def partition_command(tokens: list[str], help: str) -> tuple[Callable[..., int], list[str]]:
    """The command `partition` for these arguments, and the arguments as cyclopts takes them."""
    from coterie.app.run_flags import experiment_flags
    from coterie.config.configuration import Configuration

    fields = {f.path[0]: f for f in experiment_flags({})}
    own = [
        *(fields[key] for key in ("nodes", "dataset", "data_dir", "items", "total")),
        Flag("--seed", ("seed",), int, 0, "which draw", flags.EVERYDAY),
        Flag("--draw", ("draw",), str, None, "bubble chart to write (png, pdf or svg)", flags.EVERYDAY, "FILE"),
    ]
    known, typed = _about("partition", tokens, own)
    dataset = flags.spoken(typed, "--dataset") or str(Configuration.model_fields["dataset"].default)
    known += flags.part_flags("dataset", flags.load("datasets", dataset), {}, order=1)
    flags.check(typed, known)

    def partition(scheme: str, **given: Any) -> int:
        import numpy as np

        from coterie.config.build import load_samples
        from coterie.network import skew
        from coterie.partitions import overlaps, split

        settings = flags.settings(known, given, {})
        seed, picture = flags.whole("seed", settings.pop("seed", 0)), _picture(settings.pop("draw", None))
        chosen = {**settings.pop("partition", {}), "name": scheme}
        (experiment,) = Configuration(**settings, partition=chosen).resolved.values()
        samples = load_samples(experiment)
        targets = samples.train_y.numpy()
        labels = targets if samples.classes else np.zeros(len(targets), np.int64)  # no classes: sizes alone differ
        deal = choice("partition", as_table(experiment.partition)).make()
        limits: Any = {"items": experiment.items, "total": experiment.total}
        aside = experiment.validation if overlaps(deal) else 0.0  # what is set aside before nodes get their parts
        pairs = split(deal, targets, experiment.nodes, seed, validation=aside, **limits)
        counts = skew.counts(labels, [train for train, _ in pairs], samples.classes or 1)
        facts = skew.describe(counts)
        if overlaps(deal):
            facts["distinct_samples"] = len(np.unique(np.concatenate([train for train, _ in pairs])))
        print_facts({key.replace("_", " "): value for key, value in facts.items()})
        if picture:
            from coterie.report.allocation import draw_allocation

            picture.parent.mkdir(parents=True, exist_ok=True)
            draw_allocation(counts, picture, f"{scheme}, {experiment.nodes} nodes, {dataset}, seed {seed}")
            console().print(f"drawn to {picture}", soft_wrap=True)
        return 0

    scheme = flags.positional("scheme", f"a partition: {', '.join(names('partitions'))}")
    return flags.command(partition, help, [scheme], known), typed


def _about(slot: str, tokens: list[str], own: list[Flag]) -> tuple[list[Flag], list[str]]:
    """The flags of a command about one part, which the first word names, and the arguments as cyclopts takes them."""
    typed = flags.joined(tokens, own)
    known = list(own)
    if name := flags.first_word(typed, own):
        known += flags.part_flags(slot, flags.load(SLOTS[slot], name), {}, own=[f.name for f in own], typed=typed)
    return known, flags.joined(tokens, known)


def _picture(path: str | None) -> Path | None:
    if path is not None and Path(path).suffix.lower() not in (".png", ".pdf", ".svg"):
        raise CoterieError("the picture's format", expected="a file ending in .png, .pdf or .svg", got=path)
    return None if path is None else Path(path)
