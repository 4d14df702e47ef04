"""Faults of what a user wrote in plain words: one line each, with the key, the value given, and what is allowed.

pydantic finds the faults; its JSON Schema of the specification says which keys and kinds there are. Serves the
parsers of scenario, accelerator and model files.
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from llmsim.catalog import suggestion
from llmsim.errors import ScenarioError

Schema = dict[str, Any]
Location = tuple[int | str, ...]
_T = TypeVar("_T")

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


def build(cls: type[_T], given: Mapping[str, Any], where: str) -> _T:
    """The specification ``cls`` with the values of ``given``.

    Raises:
        ScenarioError: one line for each fault of ``given``, each starting with ``where`` (the file).
    """
    adapter = TypeAdapter(cls)
    try:
        return adapter.validate_python(dict(given))
    except ValidationError as error:
        faults = explain(error, adapter.json_schema())
    raise ScenarioError("\n".join(f"{where}: {fault}" for fault in faults))


def explain(error: ValidationError, schema: Schema) -> list[str]:
    """The faults that ``error`` reports about a specification, whose JSON Schema is ``schema``, one line each."""
    texts: dict[str, str] = {}
    for detail in error.errors(include_url=False):
        if not _is_echo(detail):
            key, text = _fault(detail, schema)
            if texts.get(key, text) != text:
                text = f"{texts[key]} or {text.removeprefix('must be ')}"
            texts[key] = text
    return [f"{key}: {line}" if key else line for key, text in texts.items() for line in text.splitlines()]


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
        return _kind_fault(_join(key, "kind"), detail["ctx"].get("tag"), list(_kinds(node, schema)))
    text = _words(detail, node)
    return f"{key} = {_toml(detail['input'])}" if _is_telling(detail, text) else key, text


def _is_telling(detail: ErrorDetails, text: str) -> bool:
    """Whether to show the value given: a single one, and not named already."""
    value = detail["input"]
    named = "[key]" in detail["loc"] or (detail["type"] == "value_error" and str(value) in text)
    return isinstance(value, str | int | float) and not named


def _kind_fault(key: str, given: str | None, kinds: list[Any]) -> tuple[str, str]:
    if given is None:
        return key, f"is required: {_any_of(kinds)}"
    return f"{key} = {_toml(given)}", f"must be {_any_of(kinds)}{suggestion(given, kinds)}"


def _words(detail: ErrorDetails, node: Schema) -> str:
    """What is wrong, without pydantic's terms."""
    if detail["type"] == "value_error":
        error = detail["ctx"]["error"]
        return "; ".join(explain(error, {})) if isinstance(error, ValidationError) else str(error)
    if detail["type"] == "too_short":
        return f"needs at least {detail['ctx']['min_length']}"
    if detail["type"] == "literal_error":
        allowed = re.findall(r"'([^']*)'", detail["ctx"]["expected"])
        return f"must be {_any_of(allowed)}{suggestion(str(detail['input']), allowed)}"
    if detail["type"] == "dataclass_type" and node.get("type") == "string":
        return "must be a string"
    if detail["type"] == "string_pattern_mismatch" and "description" in node:
        return f"does not match: {node['description']}"
    message = re.sub(r", (unable to|got) .*", "", detail["msg"])
    message = re.sub(r"^(Input|String|Value) should ", "must ", message)
    message = message.replace("a valid integer", "an integer").replace(" valid ", " ")
    return _WORDS.get(detail["type"], message)


def _unknown_key(key: str, name: str, node: Schema, schema: Schema) -> str:
    allowed = [each for branch in _branches(node, schema) for each in branch.get("properties", ())]
    if near := suggestion(name, allowed):
        return f"unknown key{near}"
    homes = [home for home in _homes(name, schema, schema, "") if home != re.sub(r"\[\d+\]", "", key)]
    if homes:
        return f"unknown key here; it belongs to {homes[0]}"
    name_hint = ", nor is there an element of this name" if re.search(r"\]\.[^.]*$", key) else ""
    return f"unknown key{name_hint}; allowed: {', '.join(allowed)}"


def _homes(name: str, node: Schema, schema: Schema, path: str) -> Iterator[str]:
    """Where a specification has a key of this name; in each table its own keys first."""
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
        if (kinds := _kinds(node, schema)) and part in kinds:
            node = _resolve({"$ref": kinds[part]}, schema)
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


def _kinds(node: Schema, schema: Schema) -> dict[int | str, str]:
    """Where the schema of each kind is, for a value that is one of several kinds."""
    node = _resolve(node, schema)
    found: dict[int | str, str] = node.get("discriminator", {}).get("mapping", {})
    for alternative in node.get("anyOf", ()):
        found = found or _kinds(alternative, schema)
    return found


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
    quoted = [f"'{name}'" for name in names]
    return f"{', '.join(quoted[:-1])} or {quoted[-1]}" if len(quoted) > 1 else quoted[0]


def _toml(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else f'{text[:56]}..."'
