"""Workloads drawn from ServeGen's descriptions of production clients (Xiang et al., 2025, github.com/alibaba/ServeGen).

A client has, for each window of time, a rate and the law of its gaps, and for longer windows the laws of its
lengths; the workload is all clients together. Two forms are read: a folder of the published ``chunk-<i>-trace.csv``
and ``chunk-<i>-dataset.json``, and a reduced pair of CSV files named ``..._arrivals.csv`` and ``..._lengths.csv``.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, NamedTuple, Self

import numpy as np
from numpy.random import Generator
from pydantic import NonNegativeFloat, PositiveFloat, PositiveInt

from llmsim.errors import ScenarioError
from llmsim.specification import specification
from llmsim.workload.arrivals import Floats, weibull_gaps
from llmsim.workload.random_streams import stream
from llmsim.workload.table import Ints, RequestTable

WINDOW_S = 600.0
_WARM_UP_GAPS = 100
"""Mean gaps that a client's arrivals run before the beginning, so as not to begin with one."""


class Window(NamedTuple):
    """How a client's requests arrive from ``start_s`` on, for ``WINDOW_S``."""

    start_s: float
    rate_per_s: float
    pattern: str
    """Gamma | Weibull."""
    shape: float

    def gaps(self, count: int, rng: Generator) -> Floats:
        """Gaps of mean 1."""
        if self.pattern == "Weibull":
            return weibull_gaps(self.shape, count, rng)
        return rng.standard_gamma(self.shape, count) / self.shape


@dataclass(frozen=True, slots=True)
class LengthTable:
    """A law as lengths at shares; between two shares a straight line, or the upper length of a step."""

    shares: Floats
    tokens: Floats
    steps: bool

    def at(self, shares: Floats) -> Ints:
        """Lengths of at least 1 at these shares."""
        if self.steps:
            at = np.minimum(np.searchsorted(self.shares, shares, side="left"), len(self.tokens) - 1)
            lengths = self.tokens[at]
        else:
            lengths = np.interp(shares, self.shares, self.tokens)
        return np.maximum(np.rint(lengths), 1).astype(np.int64)


class ServeGenClient(NamedTuple):
    """One client: its windows of arrivals in order, and its laws of prompts and outputs by the start of theirs."""

    name: str
    windows: list[Window]
    prompts: dict[float, LengthTable]
    outputs: dict[float, LengthTable]


@specification
class ServeGenWorkload:
    """Requests of production clients, drawn anew from how they arrived and how long they were."""

    kind: Literal["servegen"] = "servegen"
    path: Path
    """The folder of chunk files, or the ``..._arrivals.csv`` of a reduced pair."""
    start_s: NonNegativeFloat = 0.0
    """Where in the recorded time the workload begins."""
    duration_s: PositiveFloat | None = None
    """How much of it is drawn; None: to its end."""
    requests: PositiveInt | None = None
    """Only the first so many."""
    rate_per_s: PositiveFloat | None = None
    """Mean rate over the time drawn, all clients scaled alike; None: the recorded one."""

    def located(self, folder: Path) -> Self:
        """The same with its path as seen from the working directory. Raises ValueError when nothing is there."""
        if not (path := folder / self.path).exists():
            raise ValueError(f"path = '{path}': there is no such file or folder")
        return replace(self, path=path)

    def generate(self, seed: int) -> RequestTable:
        """The requests, in order of arrival, a client of the table for each of ServeGen's.

        Raises ScenarioError when the files cannot be read or no request arrives.
        """
        from llmsim.workload.readers.servegen import read_servegen

        clients = read_servegen(self.path)
        end_s = np.inf if self.duration_s is None else self.start_s + self.duration_s
        chosen = [_within(client, self.start_s, end_s) for client in clients]
        scale = 1.0 if self.rate_per_s is None else self._scale(chosen, end_s)
        parts = [_requests(client, scale, self.start_s, end_s, seed) for client in chosen]
        arrival_s, prompts, outputs = (np.concatenate(column) for column in zip(*parts, strict=True))
        if not len(arrival_s):
            raise ScenarioError(f"{self.path}: no request arrives from {self.start_s:g} to {end_s:g} s")
        table = RequestTable.build(
            arrival_s=arrival_s - self.start_s,
            prompt_tokens=prompts,
            output_tokens=outputs,
            client=np.repeat(np.arange(len(parts)), [len(part[0]) for part in parts]),
            client_names=tuple(client.name for client in chosen),
        )
        return table if self.requests is None else table.take(np.arange(min(self.requests, len(table))))

    def _scale(self, clients: list[ServeGenClient], end_s: float) -> float:
        """By what all rates are multiplied so that their mean is the one asked for."""
        windows = [window for client in clients for window in client.windows]
        end_s = min(end_s, max((window.start_s + WINDOW_S for window in windows), default=0.0))
        expected = sum(
            window.rate_per_s * (min(window.start_s + WINDOW_S, end_s) - max(window.start_s, self.start_s))
            for window in windows
        )
        return (self.rate_per_s or 0.0) * (end_s - self.start_s) / expected if expected else 1.0


def _within(client: ServeGenClient, start_s: float, end_s: float) -> ServeGenClient:
    """The client with only the windows that reach into this time."""
    inside = [window for window in client.windows if start_s - WINDOW_S < window.start_s < end_s]
    return client._replace(windows=inside)


def _requests(
    client: ServeGenClient, scale: float, start_s: float, end_s: float, seed: int
) -> tuple[Floats, Ints, Ints]:
    """Arrivals and lengths of one client's requests."""
    arrival_s = _arrivals_s(client.windows, scale, stream(seed, f"workload/{client.name}/arrivals"))
    arrival_s = arrival_s[(arrival_s >= start_s) & (arrival_s < end_s)]
    prompts, outputs = (
        _lengths(laws, arrival_s, stream(seed, f"workload/{client.name}/lengths/{name}"))
        for name, laws in (("prompt", client.prompts), ("output", client.outputs))
    )
    return arrival_s, prompts, outputs


def _arrivals_s(windows: list[Window], scale: float, rng: Generator) -> Floats:
    """Arrivals of one client: gaps of the law of the window they begin in, warped by the windows' rates."""
    if not windows:
        return np.zeros(0)
    passed = np.concatenate(([0.0], np.cumsum([window.rate_per_s * scale * WINDOW_S for window in windows])))
    steady, position = [], -float(_WARM_UP_GAPS)
    for window, end in zip(windows, passed[1:], strict=True):
        while position < end:
            expected = end - position
            times = position + np.cumsum(window.gaps(int(expected + 4 * expected**0.5) + 16, rng))
            inside = int(np.searchsorted(times, end)) + 1
            steady.append(times[:inside])
            position = float(steady[-1][-1])
    all_steady = np.concatenate(steady)
    all_steady = all_steady[(all_steady >= 0) & (all_steady < passed[-1])]
    at = np.searchsorted(passed, all_steady, side="right") - 1
    starts_s = np.array([window.start_s for window in windows])
    rates = np.diff(passed) / WINDOW_S
    arrivals: Floats = starts_s[at] + (all_steady - passed[at]) / rates[at]
    return arrivals


def _lengths(laws: dict[float, LengthTable], arrival_s: Floats, rng: Generator) -> Ints:
    """Lengths by the law of the window before each arrival, or the first."""
    starts_s = sorted(laws)
    at = np.maximum(np.searchsorted(starts_s, arrival_s, side="right") - 1, 0)
    shares, lengths = rng.random(len(arrival_s)), np.empty(len(arrival_s), np.int64)
    for index in np.unique(at).tolist():
        rows = at == index
        lengths[rows] = laws[starts_s[index]].at(shares[rows])
    return lengths
