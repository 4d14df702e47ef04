"""From the text of a field to a whole number: one text at a time with a fault for people, or a column at once.

Both ways give the same numbers. When any text of a column is unusual the column is refused whole, and its file
then read row by row, which is slower and names the fault.
"""

import re
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import ROUND_HALF_EVEN, Decimal
from typing import Any, Protocol, Self

import numpy as np

from llmsim.units import NS_PER_S
from llmsim.workload.table import Ints, Segments

LARGEST = 2**62
"""Leaves room in an int64 to take the difference of two."""


class UnusualTextError(Exception):
    """Some text needs ``FieldReader.one``, which knows how to judge it."""


class FieldReader(Protocol):
    """Reads the texts of a column of one file, in order."""

    def one(self, text: str) -> int:
        """One text. Raises ValueError saying what is allowed."""

    def many(self, texts: Any) -> Ints:
        """Many texts, a pyarrow array of strings, at once. Raises UnusualTextError, or pyarrow's ValueError."""


class Kind(Protocol):
    """What the texts of a column mean."""

    def start(self) -> FieldReader:
        """A reader for a file."""


@dataclass(frozen=True, slots=True)
class Whole:
    """Whole numbers of at least ``least``."""

    least: int | None = None

    def start(self) -> Self:
        """Itself: it remembers nothing."""
        return self

    def many(self, texts: Any) -> Ints:
        """Many at once."""
        import pyarrow as pa

        values: Ints = _cast(_all_match(texts, r"-?[0-9]{1,18}"), pa.int64())
        if self.least is not None and np.any(values < self.least):
            raise UnusualTextError
        return values

    def one(self, text: str) -> int:
        """One text."""
        allowed = "a whole number" if self.least is None else f"a whole number >= {self.least}"
        digits = text.removeprefix("-")
        if not (digits.isascii() and digits.isdecimal()):
            raise ValueError(f"is not {allowed}")
        if self.least is not None and int(text) < self.least:
            raise ValueError(f"is not {allowed}")
        return int(text)


TOKENS = Whole(least=1)
"""A number of tokens. 0 is refused: a request has a prompt, and one that generated nothing has failed."""


@dataclass(frozen=True, slots=True)
class Time:
    """A decimal number of some unit of time as nanoseconds, exact however large, rounded half to even."""

    digits: int
    """The unit is ``10**digits`` ns: 9 is a second."""
    unit: str

    def start(self) -> Self:
        """Itself: it remembers nothing."""
        return self

    def many(self, texts: Any) -> Ints:
        """Many at once."""
        import pyarrow as pa
        import pyarrow.compute as pc

        exact = pc.cast(_all_match(texts, r"-?[0-9]{1,18}(\.[0-9]{0,19})?"), pa.decimal128(38, 19))
        rounded = pc.round(exact, ndigits=self.digits, round_mode="half_to_even")
        values = pc.cast(rounded, pa.decimal128(38, self.digits))
        low_and_high = np.frombuffer(values.buffers()[1], np.int64).reshape(-1, 2)
        low_and_high = low_and_high[values.offset : values.offset + len(values)]
        low: Ints = low_and_high[:, 0]
        if np.any(low_and_high[:, 1] != low >> 63):
            raise UnusualTextError
        return low

    def one(self, text: str) -> int:
        """One text."""
        try:
            time_ns = int((Decimal(text) * 10**self.digits).to_integral_value(ROUND_HALF_EVEN))
        except (ArithmeticError, ValueError):
            raise ValueError(f"is not a number of {self.unit}") from None
        if abs(time_ns) > LARGEST:
            raise ValueError(f"is too large a number of {self.unit}; is it of a smaller unit?")
        return time_ns


SECONDS = Time(9, "seconds")
MILLISECONDS = Time(6, "milliseconds")
_MOMENT = r"([0-9]{4}-[0-9]{2}-[0-9]{2}[ T][0-9]{2}:[0-9]{2}:[0-9]{2})(?:\.([0-9]{1,9}))?"
_ZONE = r"(Z|[+-][0-9]{2}:[0-9]{2})"
_TIMESTAMP = re.compile(f"{_MOMENT}{_ZONE}?")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Timestamp:
    """A date and time as nanoseconds since 1970, exact to the last digit.

    A file whose times have no zone is in one zone, whichever; one with zones has them in every row.
    """

    def start(self) -> FieldReader:
        """A reader that remembers whether the file's times have zones."""
        return _Timestamps()


@dataclass(slots=True)
class _Timestamps:
    zoned: bool | None = None

    def one(self, text: str) -> int:
        """The time. Raises ValueError when it is none, or has a zone where others have not."""
        try:
            if not (parts := _TIMESTAMP.fullmatch(text)):
                raise ValueError
            second, fraction, zone = parts.groups(default="")
            since = datetime.fromisoformat(second + (zone or "Z")) - _EPOCH
        except ValueError:
            raise ValueError("is not a time like 2023-11-16 18:15:46.6805900") from None
        if self.zoned is None:
            self.zoned = bool(zone)
        if self.zoned != bool(zone):
            raise ValueError(f"has {'a' if zone else 'no'} time zone, unlike the rows before it")
        return (since.days * 86_400 + since.seconds) * NS_PER_S + int(fraction.ljust(9, "0"))

    def many(self, texts: Any) -> Ints:
        """Many at once."""
        import pyarrow as pa
        import pyarrow.compute as pc

        if self.zoned is None:
            self.zoned = pc.any(pc.match_substring_regex(texts, rf"{_ZONE}$")).as_py()
        pattern = _MOMENT + _ZONE if self.zoned else _MOMENT
        moments = pc.cast(_all_match(texts, pattern), pa.timestamp("ns", "UTC" if self.zoned else None))
        values: Ints = moments.cast(pa.int64()).to_numpy()
        return values


TIMESTAMP = Timestamp()


@dataclass(frozen=True, slots=True)
class Labels:
    """Names as numbers in order of appearance, from 0."""

    empty: int | None = None
    """Number of the empty text; None: it is a name like others."""

    def start(self) -> "Names":
        """A reader that keeps the names."""
        return Names(self.empty)


@dataclass(slots=True)
class Names:
    """The names of one file."""

    empty: int | None
    codes: dict[str, int] = field(default_factory=dict)

    def one(self, text: str) -> int:
        """The number of a name."""
        if not text and self.empty is not None:
            return self.empty
        return self.codes.setdefault(text, len(self.codes))

    def many(self, texts: Any) -> Ints:
        """Many at once."""
        encoded = texts.dictionary_encode()
        codes = np.array([self.one(text) for text in encoded.dictionary.to_pylist()], np.int64)
        numbers: Ints = codes[encoded.indices.to_numpy()]
        return numbers


@dataclass(frozen=True, slots=True)
class Pieces:
    """Prompts as pieces of token streams, ``stream:start:tokens``, separated by spaces."""

    def start(self) -> "Prompts":
        """A reader that keeps the pieces."""
        return Prompts()


@dataclass(slots=True)
class Prompts:
    """The pieces of all prompts of one file; a prompt is read as their number."""

    numbers: list[int] = field(default_factory=list)

    def one(self, text: str) -> int:
        """How many pieces a prompt has."""
        pieces = text.split()
        try:
            numbers = [int(number) for piece in pieces for number in piece.split(":")]
            if len(numbers) != 3 * len(pieces) or any(piece.count(":") != 2 for piece in pieces):
                raise ValueError
        except ValueError:
            raise ValueError("is not a list of stream:start:tokens") from None
        self.numbers += numbers
        return len(pieces)

    def many(self, texts: Any) -> Ints:
        """Not at once."""
        raise UnusualTextError

    def segments(self, counts: Ints) -> Segments:
        """The segments of prompts that have so many pieces each."""
        offsets = np.concatenate(([0], np.cumsum(counts)))
        stream, start, tokens = np.array(self.numbers, np.int64).reshape(-1, 3).T
        return offsets, stream.copy(), start.copy(), tokens.copy()


def _all_match(texts: Any, pattern: str) -> Any:
    """The texts. Raises UnusualTextError unless every one has this form."""
    import pyarrow.compute as pc

    if not pc.all(pc.match_substring_regex(texts, f"^{pattern}$"), min_count=0).as_py():
        raise UnusualTextError
    return texts


def _cast(texts: Any, kind: Any) -> Any:
    import pyarrow.compute as pc

    return pc.cast(texts, kind).to_numpy()
