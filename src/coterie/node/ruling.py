"""A rule is asked to merge, and what it gives is looked at: a slip in one's own file should not read like ours."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from coterie.contract import Inbox, Me, Rule, State
from coterie.errors import ConfigError


def merged(rule: Rule, me: Me, params: Tensor, state: State, inbox: Inbox) -> tuple[Tensor, State]:
    """What `rule.merge` gives: parameters as it was handed them, and its memory."""
    given: Any = rule.merge(me, params, state, inbox)
    name = type(rule).__name__
    if not isinstance(given, tuple) or len(given) != 2 or not isinstance(given[1], Mapping):
        cure = "End it with `return params, state`."
        raise ConfigError(f"{name}.merge", expected="parameters and memory", got=_kind(given), cure=cure)
    if not isinstance(given[0], Tensor) or given[0].shape != params.shape:
        cure = "Write everything over the last dimension; inbox.rows has neighbours in the one before it."
        raise ConfigError(f"{name}.merge", expected=f"parameters {list(params.shape)}", got=_kind(given[0]), cure=cure)
    return given


def _kind(thing: Any) -> str:
    return str(list(thing.shape)) if isinstance(thing, Tensor) else f"a {type(thing).__name__}"
