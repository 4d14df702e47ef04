"""Measured step times: linear between the points of a table, and never faster than the chip allows.

A table has a row a measured iteration. Iterations that only decode and iterations with prompts are looked up apart, by
tokens computed and mean context of a sequence: along the context at the two measured token counts around the wanted
one, then between these. For a fixed batch this is linear in the tokens attended to, as attention is.
"""

import csv
import warnings
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
from pydantic import Field, NonNegativeFloat

from llmsim.cost.analytic import AnalyticCost
from llmsim.cost.base import Account, Batch, CostModel, Step
from llmsim.deployment import Deployment
from llmsim.errors import ScenarioError
from llmsim.specification import specification

COLUMNS = ("phase", "batch", "context", "latency_ms")
PHASES = ("decode", "prefill", "mixed")
ONE_OF_EACH = ("model", "system", "hardware", "backend", "tp", "gemm_quant", "kv_quant", "attn_dp", "moe_ep")
"""Columns of which a table may have a single value: it is of one deployment."""


@specification
class TableCost:
    """Iteration times from a table of measured ones."""

    kind: Literal["table"] = "table"
    path: Path
    """CSV file with the columns ``phase`` (decode, prefill, or mixed: one prompt beside ``batch`` decodes), ``batch``
    (sequences), ``new_tokens_per_seq`` (prompt tokens computed of each), ``context`` (tokens of each after the
    iteration) and ``latency_ms``."""
    request_s: NonNegativeFloat = Field(default=0.0)
    """Of each request, before it reaches the queue."""

    def located(self, folder: Path) -> "TableCost":
        """The same with its path, which starts at ``folder``, as seen from the working directory.

        Raises ValueError when there is no such file.
        """
        path = folder / self.path
        if not path.is_file():
            raise ValueError(f"path {path}: there is no such file")
        return replace(self, path=path)

    def start(self, deployment: Deployment) -> CostModel:
        """The cost model of a deployment.

        Raises:
            ScenarioError: when the table cannot be read, a row is wrong, or it has no decode or no prompt.
        """
        points = list(_points(self.path))
        surfaces = []
        for phase, chosen in (("decode", ("decode",)), ("prefill", ("prefill", "mixed"))):
            found = [point for point in points if point.phase in chosen]
            if not found:
                raise ScenarioError(f"{self.path}: has no row of phase {' or '.join(chosen)}")
            surfaces.append(Surface(phase, found))
        return TableModel(surfaces[0], surfaces[1], deployment, self.request_s)


class Point(NamedTuple):
    """A measured iteration."""

    phase: str
    tokens: float
    context: float
    """Mean of its sequences, after the iteration."""
    seconds: float


class Surface:
    """Seconds over tokens and mean context: a polyline along the context for each measured token count."""

    __slots__ = ("_lines", "_outside", "_tokens", "name")

    def __init__(self, name: str, points: list[Point]) -> None:
        self.name = name
        lines: dict[float, dict[float, list[float]]] = {}
        for point in points:
            lines.setdefault(point.tokens, {}).setdefault(point.context, []).append(point.seconds)
        self._tokens = sorted(lines)
        self._lines = [_Line.through(lines[tokens]) for tokens in self._tokens]
        self._outside = False

    def at(self, tokens: int, context: float) -> float:
        """Seconds for a token count and a mean context; warns when it extrapolates."""
        above = min(max(bisect_right(self._tokens, tokens), 1), max(len(self._tokens) - 1, 1))
        lower = self._lines[above - 1]
        if not self._outside:
            self._note(tokens, context, lower)
        if len(self._lines) == 1:
            return lower.at(context)
        upper, start = self._lines[above], self._tokens[above - 1]
        share = (tokens - start) / (self._tokens[above] - start)
        first = lower.at(context)
        return first + (upper.at(context) - first) * share

    def _note(self, tokens: int, context: float, line: "_Line") -> None:
        least, most = line.contexts[0], line.contexts[-1]
        if self._tokens[0] <= tokens <= self._tokens[-1] and least <= context <= most:
            return
        self._outside = True
        warnings.warn(
            f"the table of step times is extrapolated: {self.name} of {tokens} tokens at a context of {context:.0f}; "
            f"it holds {self._tokens[0]:.0f} to {self._tokens[-1]:.0f} tokens, there {least:.0f} to {most:.0f}",
            stacklevel=2,
        )


class _Line(NamedTuple):
    contexts: list[float]
    seconds: list[float]
    slopes: list[float]

    @classmethod
    def through(cls, points: dict[float, list[float]]) -> "_Line":
        """Through the means of the points; level when there is one only."""
        contexts = sorted(points)
        seconds = [sum(points[context]) / len(points[context]) for context in contexts]
        pairs = zip(contexts, contexts[1:], seconds, seconds[1:], strict=False)
        slopes = [(after - before) / (end - start) for start, end, before, after in pairs]
        return cls(contexts, seconds, slopes or [0.0])

    def at(self, context: float) -> float:
        """Seconds at a context; the end pieces go on beyond the ends."""
        last = len(self.slopes) - 1
        index = min(max(bisect_right(self.contexts, context) - 1, 0), last)
        return self.seconds[index] + (context - self.contexts[index]) * self.slopes[index]


class TableModel:
    """``TableCost`` on a deployment; see ``CostModel``."""

    __slots__ = ("_analytic", "_decode", "_ideal", "_prefill", "request_s")

    def __init__(self, decode: Surface, prefill: Surface, deployment: Deployment, request_s: float) -> None:
        self._decode, self._prefill = decode, prefill
        self._ideal = AnalyticCost(ideal=True).start(deployment)
        self._analytic = AnalyticCost().start(deployment)
        self.request_s = request_s

    def step(self, batch: Batch) -> Step:
        """The time of one iteration; 0 for an empty batch."""
        tokens = batch.prefill_tokens + batch.decode_sequences
        if not tokens:
            return Step(0.0, 0.0)
        context = batch.prefill_context_tokens + batch.decode_context_tokens
        surface = self._prefill if batch.prefill_tokens else self._decode
        mean = context / (batch.prefill_sequences + batch.decode_sequences)
        bound = self._ideal.step(batch)
        seconds = surface.at(tokens, mean)
        return Step(max(seconds, bound.occupancy_s), max(seconds, bound.latency_s))

    def account(self, batches: Batch) -> Account:
        """The work that the analytic model counts, and its times in the table's measure."""
        arrays = Batch(*(np.asarray(field) for field in batches))
        counted = self._analytic.account(arrays)
        times = np.stack([counted.compute_s, counted.hbm_s, counted.link_s, counted.overhead_s])
        each = zip(*(field.tolist() for field in np.broadcast_arrays(*arrays)), strict=True)
        taken = np.array([self.step(Batch(*fields)).occupancy_s for fields in each])
        whole = times.sum(axis=0)
        compute_s, hbm_s, link_s, overhead_s = times * np.divide(
            taken, whole, out=np.zeros(taken.shape), where=whole > 0
        )
        return Account(counted.flop, counted.hbm_bytes, counted.link_bytes, compute_s, hbm_s, link_s, overhead_s)


def _points(path: Path) -> Iterator[Point]:
    """The rows of a table. Raises ScenarioError naming the line, the value and what is allowed."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            rows = list(csv.DictReader(file))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ScenarioError(f"{path}: the table of step times cannot be read: {error}") from None
    lacking = [name for name in COLUMNS if not rows or name not in rows[0]]
    if lacking:
        raise ScenarioError(f"{path}: needs the columns {', '.join(COLUMNS)} and a row; lacks {', '.join(lacking)}")
    for name in ONE_OF_EACH:
        values = sorted({row.get(name) or "" for row in rows})
        if len(values) > 1:
            raise ScenarioError(
                f"{path}: is of several deployments: {name} is {', '.join(values)}; keep the rows of one"
            )
    for line, row in enumerate(rows, start=2):
        yield _point(row, f"{path}: line {line}")


def _point(row: dict[str, str], where: str) -> Point:
    phase = row["phase"]
    if phase not in PHASES:
        raise ScenarioError(f"{where}: phase = {phase!r}; allowed: {', '.join(PHASES)}")
    try:
        batch, context, milliseconds = (float(row[name]) for name in COLUMNS[1:])
        new = float(row.get("new_tokens_per_seq") or 1)
    except (TypeError, ValueError) as error:
        raise ScenarioError(
            f"{where}: {error}; batch, context, new_tokens_per_seq and latency_ms are numbers"
        ) from None
    if min(batch, context, milliseconds, new) <= 0:
        raise ScenarioError(f"{where}: batch, context, new_tokens_per_seq and latency_ms must be above 0")
    if phase == "decode":
        return Point(phase, batch, context, milliseconds * 1e-3)
    if phase == "prefill":
        return Point(phase, batch * new, context, milliseconds * 1e-3)
    return Point(phase, batch + new, (batch * context + new) / (batch + 1), milliseconds * 1e-3)
