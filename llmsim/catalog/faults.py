"""What pydantic finds wrong with a mapping, as one message: the file, the key, the value, what is allowed.

Serves the parsers of accelerator and model files, which stand above.
"""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any, TypeVar, get_args, get_type_hints

from pydantic import TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from llmsim.catalog import suggestion
from llmsim.errors import ScenarioError

_T = TypeVar("_T")


def build(cls: type[_T], given: Mapping[str, Any], where: str) -> _T:
    """The specification ``cls`` with the values of ``given``.

    Raises:
        ScenarioError: one line for each fault of ``given``, each starting with ``where`` (the file).
    """
    try:
        return TypeAdapter(cls).validate_python(dict(given))
    except ValidationError as error:
        lines = [f"{where}: {_fault(cls, fault)}" for fault in error.errors(include_url=False)]
    raise ScenarioError("\n".join(lines))


def _fault(cls: Any, fault: ErrorDetails) -> str:
    path = [str(part) for part in fault["loc"]]
    key = ".".join(path)
    if fault["type"] == "unexpected_keyword_argument":
        allowed = _keys(cls, path[:-1])
        return f"unknown key {key}{suggestion(path[-1], allowed)} Allowed: {', '.join(allowed)}."
    if fault["type"] == "missing":
        return f"{key} is missing."
    return f"{key} = {fault['input']!r}: {fault['msg'].replace('Input should', 'must', 1)}."


def _keys(cls: Any, path: list[str]) -> list[str]:
    """Names of the fields of the specification at ``path`` within ``cls``."""
    for part in path:
        hint = get_type_hints(cls)[part]
        cls = next(each for each in (hint, *get_args(hint)) if is_dataclass(each))
    return [field.name for field in fields(cls)]
