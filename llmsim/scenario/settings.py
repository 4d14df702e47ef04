"""Changing single keys of a scenario: ``--set pools.chat.replicas=2`` and ``scenario.with_settings({...})``.

A dotted key leads through tables. At an array of tables the next part is an index or the name of one element;
any other part means every element: ``pools.replicas`` is the replicas of all pools.
"""

import dataclasses
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from llmsim.errors import ScenarioError


def parse_settings(lines: Iterable[str]) -> dict[str, Any]:
    """``key=value`` texts as a mapping; a value is TOML, and a word that is not TOML is a string.

    Raises:
        ScenarioError: for a text without ``=``, key or value.
    """
    settings = {}
    for line in lines:
        key, _, value = (part.strip() for part in line.partition("="))
        if not key or not value:
            raise ScenarioError(f"--set {line}: needs key=value, such as workload.rate_per_s=6")
        settings[key] = parse_value(value)
    return settings


def parse_value(text: str) -> Any:
    """A value as TOML; a word that is not TOML, such as ``h100-sxm``, is a string.

    Raises:
        ScenarioError: for a list, table or quoted string that is not closed or otherwise not TOML.
    """
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError as error:
        if text[0] in "[{\"'":
            raise ScenarioError(f"--set {text}: not a TOML value: {error}") from None
        return text


def apply_settings(data: Any, settings: Mapping[str, Any]) -> Any:
    """``data``, whose tables are mappings or specifications, with each dotted key set to its value.

    ``data`` itself stays as it is. Whether a key exists is found by who validates the result.

    Raises:
        ScenarioError: when a key leads through a value that is no table, or to an element that is not there.
    """
    for key, value in settings.items():
        data = _put(data, key.split("."), value, key)
    return data


def _put(node: Any, parts: Sequence[str], value: Any, key: str) -> Any:
    if not parts:
        return value
    if isinstance(node, list | tuple) and all(_is_table(element) for element in node):
        return _put_in_elements(node, parts, value, key)
    if node is not None and not _is_table(node):
        raise ScenarioError(f"{key}: leads nowhere, because {node!r} has no key {parts[0]!r}")
    table = _table(node)
    return {**table, parts[0]: _put(table.get(parts[0]), parts[1:], value, key)}


def _put_in_elements(elements: Sequence[Any], parts: Sequence[str], value: Any, key: str) -> list[Any]:
    names = [_table(element).get("name") for element in elements]
    if parts[0].isdecimal():
        if int(parts[0]) >= len(elements):
            raise ScenarioError(f"{key}: there is no element {parts[0]}; the last one is {len(elements) - 1}")
        chosen, rest = [int(parts[0])], parts[1:]
    elif parts[0] in names:
        chosen, rest = [names.index(parts[0])], parts[1:]
    else:
        chosen, rest = list(range(len(elements))), parts
    return [_put(each, rest, value, key) if i in chosen else each for i, each in enumerate(elements)]


def _is_table(node: Any) -> bool:
    return isinstance(node, Mapping) or dataclasses.is_dataclass(node)


def _table(node: Any) -> dict[str, Any]:
    if dataclasses.is_dataclass(node):
        return {field.name: getattr(node, field.name) for field in dataclasses.fields(node)}
    return dict(node or {})
