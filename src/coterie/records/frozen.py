"""The configuration of a run as it is written down."""

from typing import Any

from coterie.config.configuration import Configuration


def frozen(experiment: Configuration) -> str:
    """The configuration with every setting written out: presets may change, a run may not."""
    methods = {name: method.model_dump() for name, method in experiment.resolved.items()}
    shared_out = {"budget": None} if experiment.methods else {}  # each method has its share
    whole = experiment.model_copy(update={"methods": {}, **shared_out})._fill(checked=not experiment.methods)
    shared = whole.model_dump()
    for key, field in Configuration.model_fields.items():
        # TOML cannot say None: what some method must not inherit is not shared, and the others say it themselves
        if any(_unsays(method[key], shared[key]) for method in methods.values()):
            shared[key] = field.default
    own = {
        name: {k: v for k, v in method.items() if k == "rule" or (v != shared[k] and v is not None)}
        for name, method in methods.items()
    }
    return whole.model_copy(update={**shared, "methods": own}).to_toml()


def _unsays(own: Any, shared: Any) -> bool:
    """Whether a method has nothing where the others have something."""
    if isinstance(own, dict) and isinstance(shared, dict) and own.get("name") == shared.get("name"):
        return any(_unsays(own[key], shared.get(key)) for key in own)
    return own is None and shared is not None
