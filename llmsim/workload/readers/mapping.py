"""One's own logs: which column or key holds what."""

from typing import Literal

from pydantic import Field

from llmsim.specification import specification
from llmsim.workload.readers.columns import Column, ColumnFormat
from llmsim.workload.readers.fields import MILLISECONDS, SECONDS, TIMESTAMP, TOKENS, Kind, Labels, Time, Whole

TIME_UNITS: dict[str, Kind] = {
    "s": SECONDS,
    "ms": MILLISECONDS,
    "us": Time(3, "microseconds"),
    "ns": Time(0, "nanoseconds"),
    "iso": TIMESTAMP,
}


@specification
class ColumnMapping:
    """Names of the columns of a CSV or Parquet file, or of the keys of JSON lines (``usage.prompt_tokens``)."""

    time: str | None = Field(default=None, min_length=1)
    """When a request arrived; None: the file does not say."""
    time_unit: Literal["s", "ms", "us", "ns", "iso"] = "s"
    """Unit of a number on any clock; iso: a date and time like 2023-11-16 18:15:46.68."""
    prompt_tokens: str = Field(min_length=1)
    """Length of the prompt."""
    output_tokens: str = Field(min_length=1)
    """Length of the answer."""
    session: str | None = None
    """What is the same in all requests of a conversation: each waits for the end of the one before. Not the user,
    who may have several at once."""
    cached_tokens: str | None = None
    """How many prompt tokens were cached: so many are shared with an earlier request of the session or model."""
    max_tokens: str | None = None
    """Limit on the answer that the request carried."""
    priority: str | None = None
    """Smaller is more important."""
    model: str | None = None
    """What tells clients apart in the result."""

    def format(self) -> ColumnFormat:
        """The format of such a file."""
        known = (
            (self.time, "arrival_ns", TIME_UNITS[self.time_unit]),
            (self.prompt_tokens, "prompt_tokens", TOKENS),
            (self.output_tokens, "output_tokens", TOKENS),
            (self.session, "session", Labels(empty=-1)),
            (self.cached_tokens, "cached_tokens", Whole(least=0)),
            (self.max_tokens, "max_tokens", Whole()),
            (self.priority, "priority", Whole()),
            (self.model, "client", Labels()),
        )
        columns = tuple(Column(name, field, kind) for name, field, kind in known if name is not None)
        return ColumnFormat(name="columns", columns=columns, chained=self.session is not None)
