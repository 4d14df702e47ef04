"""A worked number: its formula, and the formula with the numbers filled in."""

import re
from collections.abc import Mapping
from typing import Any, NamedTuple


class Line(NamedTuple):
    """A figure, how it comes about, and from which numbers."""

    key: str
    label: str
    value: float
    unit: str = ""
    """bytes, s, FLOP, FLOP/s, FLOP/byte, bytes/s, tokens, 1/s, USD, share; empty for counts and ratios."""
    formula: str = ""
    """Arithmetic over the names of ``terms``; empty for a fact."""
    terms: Mapping[str, float] = {}

    @property
    def numbers(self) -> str:
        """The formula with the numbers filled in: arithmetic that gives the value."""
        return re.sub(r"[A-Za-z_]\w*", self._number, self.formula)

    def as_dict(self) -> dict[str, Any]:
        """The line as JSON values."""
        return {"value": self.value, "unit": self.unit, "formula": self.formula, "numbers": self.numbers}

    def _number(self, match: re.Match[str]) -> str:
        value = self.terms.get(match.group())
        return match.group() if value is None else _plain(value)


def _plain(value: float) -> str:
    """A number as one writes it in arithmetic: whole below a million, otherwise with five digits."""
    if value == int(value) and abs(value) < 1e6:
        return str(int(value))
    return f"{value:.5g}"
