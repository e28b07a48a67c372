"""A JSON schema of configuration files, with the settings of every part, for editors that complete and check them."""

from typing import Any

from pydantic import TypeAdapter
from pydantic.errors import PydanticInvalidForJsonSchema, PydanticSchemaGenerationError

from coterie import methods
from coterie.config.configuration import Configuration
from coterie.config.slots import SLOTS, settings_model
from coterie.errors import ConfigError
from coterie.parts import described, find, names


def schema() -> dict[str, Any]:
    """The schema of a file such as `coterie run my.toml` reads."""
    settings = {key: _field(key) for key in Configuration.model_fields if key != "methods"}
    of_method = {**settings, "use": {"type": "string", "description": "the preset that it starts from"}}
    table = {"type": "object", "properties": of_method, "additionalProperties": False}
    presets: dict[str, Any] = {"type": "array", "items": {"type": "string", "examples": methods.names()}}
    varied = {"type": "object", "description": "what `coterie sweep` varies, with a list of values each"}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "An experiment of Coterie",
        "type": "object",
        "additionalProperties": False,
        "properties": {
            **settings,
            "methods": {"anyOf": [presets, {"type": "string"}, {"type": "object", "additionalProperties": table}]},
            "sweep": varied,
        },
        "$defs": {room: _room(slot, room) for slot, room in SLOTS.items()},
    }


def _field(key: str) -> dict[str, Any]:
    """The schema of a setting, as loose as what a file may say: text is read as flags are."""
    field = Configuration.model_fields[key]
    told = {"description": field.description or ""}
    if key in SLOTS:
        part = {"$ref": f"#/$defs/{SLOTS[key]}"}
        kinds = [part, {"type": "array", "items": part}] if key == "model" else [part]
        return {**told, "anyOf": [{"type": "string", "examples": list(names(SLOTS[key]))}, *kinds]}
    found = _of(field.annotation)
    found.pop("default", None)
    simple = found.get("type") in ("integer", "number", "boolean", "string")
    return {**told, **(found if simple else {})}


def _room(slot: str, room: str) -> dict[str, Any]:
    """Any of the parts of a room with its settings, or a part of a user's own."""
    known = list(names(room))
    own = {"type": "object", "properties": {"name": {"not": {"enum": known}}}, "required": ["name"]}
    return {"anyOf": [*(made for name in known if (made := _part(slot, room, name))), own]}


def _part(slot: str, room: str, name: str) -> dict[str, Any] | None:
    """A part's table; none where what it needs is not installed."""
    try:
        part = find(room, name)
        fields = settings_model(slot, part).model_fields
    except (ConfigError, ImportError):
        return None
    properties: dict[str, Any] = {"name": {"const": name}}
    for key, field in fields.items():
        default = {} if field.is_required() or not _plain(field.default) else {"default": field.default}
        properties[key] = _of(field.annotation) | default
    if slot == "model":
        properties["nodes"] = {"type": "integer", "minimum": 1}
    needed = ["name", *(key for key, field in fields.items() if field.is_required())]
    summary, _ = described(room, name)
    about = {"description": summary, "type": "object", "properties": properties, "required": needed}
    return {**about, "additionalProperties": False}


def _of(annotation: Any) -> dict[str, Any]:
    """What JSON can say of a type; of others nothing, so that anything goes."""
    try:
        found = TypeAdapter(annotation).json_schema()
    except (PydanticInvalidForJsonSchema, PydanticSchemaGenerationError):
        return {}
    return {} if "$defs" in found else found


def _plain(value: Any) -> bool:
    return isinstance(value, str | int | float | bool)
