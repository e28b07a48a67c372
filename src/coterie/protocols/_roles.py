"""Who trains, passes models on, or is idle: for good, or by round."""

from collections.abc import Iterable, Sequence

from coterie.errors import ConfigError


def check_roles(roles: Sequence[str], proxy: Sequence[int], idle: Sequence[int]) -> None:
    """Refuse roles that say two things, or words that mean nothing."""
    for name, nodes in (("proxy", proxy), ("idle", idle)):
        if len({*nodes}) < len(nodes):
            raise ValueError(f"{name} names a node twice: {', '.join(map(str, nodes))}")
    if roles and (proxy or idle):
        raise ValueError("roles say who is a proxy or idle: give neither proxy nor idle beside them")
    if wrong := [word for word in roles if not word or {*word} - {*"tpi"}]:
        raise ValueError(f"roles are words of t (trains), p (passes on) and i (idle), not {wrong[0]!r}")


def letters(
    roles: Sequence[str], proxy: Iterable[int], idle: Iterable[int], everyone: Sequence[int], round: int
) -> dict[int, str]:
    """Everyone's letter in a round: t, p or i."""
    if roles:
        return dict(zip(everyone, roles[(round - 1) % len(roles)], strict=True))
    fixed = dict.fromkeys(proxy, "p") | dict.fromkeys(idle, "i")
    return {node: fixed.get(node, "t") for node in everyone}


def check_words(roles: Sequence[str], count: int) -> None:
    """Refuse words that have not a letter for each node."""
    if odd := [word for word in roles if len(word) != count]:
        cure = "Give a letter to each node: t trains, p passes models on, i is idle."
        raise ConfigError("protocol.roles", expected=f"words of {count} letters", got=odd[0], cure=cure)


def check_trainers(protocol: str, roles: Sequence[str], by_round: Sequence[dict[int, str]]) -> None:
    """Refuse a round in which nobody trains."""
    if lazy := [round for round, found in enumerate(by_round, 1) if "t" not in found.values()]:
        when, what = (f" in round {lazy[0]}", "roles") if roles else ("", "proxy or --protocol.idle")
        cure = f"Let one train, by --protocol.{what}."
        raise ConfigError(f"protocol {protocol}: no node trains{when}", cure=cure)
