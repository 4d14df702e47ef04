"""The one decorator of every specification: a frozen dataclass that checks its values.

A specification is what a user writes, in a file or in Python: the same faults are found in both. Values of a run
(batches, steps, rows) are plain dataclasses or tuples and are not checked.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar, dataclass_transform

from pydantic import ConfigDict, Field, WrapValidator
from pydantic.dataclasses import dataclass

_T = TypeVar("_T")

if TYPE_CHECKING:
    Held = TypeVar("Held", covariant=True)
    Taken = TypeVar("Taken", contravariant=True)

    class Given(Generic[Held, Taken]):
        """For type checkers: a field that takes more than the type it then has, such as a name of what it holds."""

        def __get__(self, instance: object, owner: Any) -> Held: ...
        def __set__(self, instance: object, value: Taken) -> None: ...


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


def or_any_with(method: str) -> WrapValidator:
    """Besides what a field is of, any object with a method of this name: policies of the user's own class."""

    def check(value: Any, validate: Callable[[Any], Any]) -> Any:
        return value if callable(getattr(value, method, None)) else validate(value)

    return WrapValidator(check)
