"""The one decorator of every specification: a frozen dataclass that checks its values.

A specification is what a user writes, in a file or in Python: the same faults are found in both. Values of a run
(batches, steps, rows) are plain dataclasses or tuples and are not checked.
"""

from typing import Any, TypeVar, dataclass_transform

from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass

_T = TypeVar("_T")


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(Field,))
def specification(cls: type[_T]) -> type[_T]:
    """Make ``cls`` a specification: frozen, slots, keyword-only, no unknown key, values checked by pydantic.

    The docstrings under its fields become the descriptions in the JSON Schema of scenario files.

    Raises ``pydantic.ValidationError`` (a ``ValueError``) when an instance is made with a bad value.
    """
    config = ConfigDict(
        extra="forbid", allow_inf_nan=False, arbitrary_types_allowed=True, use_attribute_docstrings=True
    )
    decorate: Any = dataclass(frozen=True, slots=True, kw_only=True, config=config)
    return decorate(cls)  # type: ignore[no-any-return]
