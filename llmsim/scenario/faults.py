"""Faults of a scenario in plain words: one line each, with the key, the value given, and what is allowed.

pydantic finds the faults; its JSON Schema of a scenario says which keys and kinds there are.
"""

import json
import re
from collections.abc import Iterator
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from llmsim.catalog import suggestion

Schema = dict[str, Any]
Location = tuple[int | str, ...]

_UNKNOWN_KEY = ("unexpected_keyword_argument", "extra_forbidden")
_KIND = ("union_tag_invalid", "union_tag_not_found")
_WORDS = {
    "missing": "is required",
    "dataclass_type": "must be a table",
    "model_attributes_type": "must be a table",
    "dict_type": "must be a table",
    "tuple_type": "must be an array",
    "list_type": "must be an array",
}


def explain(error: ValidationError, schema: Schema) -> list[str]:
    """The faults that ``error`` reports about a scenario, whose JSON Schema is ``schema``, one line each."""
    lines: dict[str, str] = {}
    for detail in error.errors(include_url=False):
        if not _is_echo(detail):
            key, text = _fault(detail, schema)
            alternative = f"{lines[key]} or {text.removeprefix('must be ')}" if key in lines else text
            lines[key] = text if lines.get(key) == text else alternative
    return [f"{key}: {text}" if key else text for key, text in lines.items()]


def _is_echo(detail: ErrorDetails) -> bool:
    """Whether an array counts as too short only because its elements have faults of their own."""
    return detail["type"] == "too_short" and len(detail["input"]) >= detail["ctx"]["min_length"]


def _fault(detail: ErrorDetails, schema: Schema) -> tuple[str, str]:
    """The key with the value given, and what is wrong with it."""
    location = detail["loc"]
    if detail["type"] in _UNKNOWN_KEY:
        parent, node = _walk(location[:-1], schema)
        key = _join(parent, location[-1])
        return key, _unknown_key(key, str(location[-1]), node, schema)
    key, node = _walk(location, schema)
    if detail["type"] in _KIND:
        kinds = list(node["discriminator"]["mapping"])
        given = detail.get("ctx", {}).get("tag")
        return (_join(key, "kind"), f"is required: {_any_of(kinds)}") if given is None else (
            f"{_join(key, 'kind')} = {_toml(given)}", f"must be {_any_of(kinds)}{suggestion(given, kinds)}"
        )
    text = _words(detail)
    value = detail["input"]
    shown = isinstance(value, str | int | float) and str(value) not in text and detail["type"] != "missing"
    return f"{key} = {_toml(value)}" if shown else key, text


def _words(detail: ErrorDetails) -> str:
    """What is wrong, without pydantic's terms."""
    if detail["type"] == "value_error":
        error = detail["ctx"]["error"]
        return "; ".join(explain(error, {})) if isinstance(error, ValidationError) else str(error)
    if detail["type"] == "too_short":
        return f"needs at least {detail['ctx']['min_length']}"
    if detail["type"] == "literal_error":
        allowed = re.findall(r"'([^']*)'", detail["ctx"]["expected"])
        return f"must be {_any_of(allowed)}{suggestion(str(detail['input']), allowed)}"
    message = re.sub(r", (unable to|got) .*", "", detail["msg"])
    message = re.sub(r"^(Input|String|Value) should ", "must ", message)
    return _WORDS.get(detail["type"], message.replace(" a valid ", " a ").replace(" a integer", " an integer"))


def _unknown_key(key: str, name: str, node: Schema, schema: Schema) -> str:
    allowed = [each for branch in _branches(node, schema) for each in branch.get("properties", ())]
    if near := suggestion(name, allowed):
        return f"unknown key{near}"
    homes = [home for home in _homes(name, schema, schema, "") if home != re.sub(r"\[\d+\]", "", key)]
    if homes:
        return f"unknown key here; it belongs to {homes[0]}"
    return f"unknown key; allowed: {', '.join(allowed)}"


def _homes(name: str, node: Schema, schema: Schema, path: str) -> Iterator[str]:
    """Where the scenario has a key of this name, the nearest to the root first in each table."""
    for branch in _branches(node, schema):
        properties = branch.get("properties", {})
        if name in properties:
            yield _join(path, name)
        for each, child in properties.items():
            yield from _homes(name, child, schema, _join(path, each))
        if "items" in branch:
            yield from _homes(name, branch["items"], schema, path)


def _walk(location: Location, schema: Schema) -> tuple[str, Schema]:
    """The key a reader knows the location by, and the schema there.

    A location also holds labels of pydantic's for the alternatives of a value, which no file shows.
    """
    key, node = "", schema
    for part in location:
        mapping = node.get("discriminator", {}).get("mapping", {})
        if part in mapping:
            node = _resolve({"$ref": mapping[part]}, schema)
            continue
        branches = list(_branches(node, schema))
        child = next((found for branch in branches if (found := _child(branch, part)) is not None), None)
        if child is None and (len(branches) > 1 or part == "[key]"):
            break
        key, node = _join(key, part), _resolve(child or {}, schema)
    return key, node


def _child(node: Schema, part: int | str) -> Schema | None:
    if isinstance(part, int):
        return node.get("items")
    if part in node.get("properties", {}):
        child: Schema = node["properties"][part]
        return child
    others = node.get("additionalProperties")
    return others if isinstance(others, dict) and part != "[key]" else None


def _branches(node: Schema, schema: Schema) -> Iterator[Schema]:
    """The alternatives of a value."""
    node = _resolve(node, schema)
    alternatives = node.get("anyOf") or node.get("oneOf")
    for alternative in alternatives or ():
        if alternative.get("type") != "null":
            yield from _branches(alternative, schema)
    if not alternatives:
        yield node


def _resolve(node: Schema, schema: Schema) -> Schema:
    while "$ref" in node:
        node = schema["$defs"][node["$ref"].rpartition("/")[2]]
    return node


def _join(key: str, part: int | str) -> str:
    if isinstance(part, int):
        return f"{key}[{part}]"
    return f"{key}.{part}" if key else part


def _any_of(names: list[str]) -> str:
    return " or ".join(f"'{name}'" for name in names)


def _toml(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:56]}...\""
