"""What a trace is like: its rate, its burstiness, its lengths, what its prompts share, and what is odd about it."""

import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from llmsim.units import NS_PER_S
from llmsim.workload.random_streams import stream
from llmsim.workload.readers import ColumnMapping, format_of, read_trace
from llmsim.workload.readers.servegen import is_servegen
from llmsim.workload.servegen import ServeGenWorkload
from llmsim.workload.stamps import shared_grid_ns, spread
from llmsim.workload.table import Ints, RequestTable

SHARES = {
    "min": 0.0,
    "p5": 0.05,
    "p25": 0.25,
    "p50": 0.5,
    "p75": 0.75,
    "p90": 0.9,
    "p95": 0.95,
    "p99": 0.99,
    "max": 1.0,
}
SERVEGEN_S = 3600.0
"""Time drawn of a description by ServeGen, which can hold tens of millions of requests."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """The requests of a file as recorded."""

    table: RequestTable
    timed: bool
    """Whether the arrivals are the file's own."""
    notes: list[str]
    """What was noticed while reading: rows left out, rows out of order."""


@dataclass(frozen=True, slots=True)
class ArrivalFacts:
    """How requests arrive, those left out that only wait for another's end."""

    requests: int
    span_s: float
    """From the first to the last."""
    mean_rate_per_s: float
    peak_second_per_s: float
    """Most in one second of the trace's clock."""
    peak_minute_per_s: float
    """Most in one minute, as a rate."""
    gap_cv: float
    """Coefficient of variation of the gaps: 1 for Poisson arrivals."""
    idc_1s: float | None
    """Index of dispersion (variance / mean) of the counts a second: 1 for Poisson arrivals; None: fewer than 10."""
    idc_60s: float | None
    """The same of counts a minute."""


@dataclass(frozen=True, slots=True)
class Description:
    """What is worth knowing of a trace before it is replayed."""

    requests: int
    arrivals: ArrivalFacts | None
    """None: the file has no times, or but one request."""
    prompt_tokens: dict[str, float]
    """The mean, and the lengths at ``SHARES``."""
    output_tokens: dict[str, float]
    rank_correlation: float | None
    """Spearman's, between prompt and output tokens; None: one of them never changes."""
    prefix_hit_ceiling: float
    """Share of prompt tokens that an endless prefix cache of single tokens would find."""
    sessions: int
    session_requests_mean: float
    """Requests of a session on average; 0 without sessions."""
    chained_share: float
    """Share of requests that wait for the end of another."""
    clients: dict[str, int]
    """Requests by client."""
    oddities: list[str]


def read_recorded(
    path: Path, form: str = "auto", columns: ColumnMapping | None = None, requests: int | None = None
) -> Recorded:
    """The requests of a trace as they were recorded, bad rows left out. Raises ScenarioError as reading does."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        if is_servegen(path):
            table = ServeGenWorkload(path=path, duration_s=SERVEGEN_S, requests=requests).generate(0)
            notes = [f"drawn with seed 0 from the description of clients; the first {SERVEGEN_S:g} s of it"]
            return Recorded(table, True, notes)
        known = format_of(path, form) if columns is None else columns.format()
        table = read_trace(path, known, requests, skip_bad_rows=True)
    return Recorded(table, known.timed, [str(each.message).removeprefix(f"{path}: ") for each in caught])


def describe(recorded: Recorded) -> Description:
    """The figures of a trace, and what is odd about it."""
    table = recorded.table
    sizes = np.bincount(table.session[table.session >= 0])
    sizes = sizes[sizes > 0]
    counts = np.bincount(table.client, minlength=len(table.client_names)).tolist()
    arrival_ns = _own_arrivals_ns(table)
    facts = None
    if recorded.timed and np.ptp(arrival_ns):
        facts = _arrival_facts(spread(arrival_ns, None, stream(0, "workload/trace/arrivals")))
    return Description(
        requests=len(table),
        arrivals=facts,
        prompt_tokens=_length_facts(table.prompt_tokens),
        output_tokens=_length_facts(table.output_tokens),
        rank_correlation=_rank_correlation(table.prompt_tokens, table.output_tokens),
        prefix_hit_ceiling=float(prefix_hits(table)[0].sum() / table.prompt_tokens.sum()),
        sessions=len(sizes),
        session_requests_mean=float(sizes.mean()) if len(sizes) else 0.0,
        chained_share=float(np.mean(table.after >= 0)),
        clients={name: count for name, count in zip(table.client_names, counts, strict=True) if count},
        oddities=[
            *recorded.notes,
            *(_oddities_of_times(arrival_ns) if recorded.timed else []),
            *_oddities_of_rows(recorded),
        ],
    )


def _own_arrivals_ns(table: RequestTable) -> Ints:
    """Arrivals of the requests that have a time of their own, not just one to wait for."""
    begun = table.arrival_ns[table.after.clip(min=0)]
    own: Ints = table.arrival_ns[(table.after < 0) | (table.arrival_ns > begun)]
    return own


def counts_per(arrival_ns: Ints, step_s: float) -> NDArray[np.int64]:
    """Arrivals in each whole step from 0, the last, unfinished step included."""
    return np.bincount(arrival_ns // round(step_s * NS_PER_S))


def prefix_hits(table: RequestTable) -> tuple[Ints, Ints]:
    """Prompt tokens of each row that stood, after the same tokens, in an earlier prompt with its output.

    Also the last such row that had as many of them as any; -1 when none had one.
    """
    hits, sources = np.zeros(len(table), np.int64), np.full(len(table), -1, np.int64)
    if len(table.segment_offsets) == 1:
        return hits, sources
    seen: dict[tuple[int, int, int], list[tuple[int, int]]] = {}
    nodes: dict[tuple[int, int, int, int], int] = {}
    columns = (table.segment_stream, table.segment_start, table.segment_tokens)
    pieces = list(zip(*(column.tolist() for column in columns), strict=True))
    edges = table.segment_offsets.tolist()
    for row, output in enumerate(table.output_tokens.tolist()):
        prompt = _merged(pieces[edges[row] : edges[row + 1]])
        node, hitting = 0, True
        for source_stream, start, tokens in [*prompt, (-1 - row, 0, output)]:
            edge = (node, source_stream, start)
            earlier = seen.setdefault(edge, [])
            if hitting and earlier:
                common = min(earlier[0][0], tokens)
                hits[row] += common
                sources[row] = next(source for known, source in reversed(earlier) if known >= common)
            hitting = hitting and bool(earlier) and earlier[0][0] >= tokens
            # Rows with their tokens, later rows with fewer: an earlier row with no more is of no use.
            while earlier and earlier[-1][0] <= tokens:
                earlier.pop()
            earlier.append((tokens, row))
            node = nodes.setdefault((*edge, tokens), len(nodes) + 1)
    return hits, sources


def _merged(pieces: list[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    """The pieces, those that follow on each other in one stream made one."""
    merged: list[tuple[int, int, int]] = []
    for piece in pieces:
        if merged and merged[-1][0] == piece[0] and merged[-1][1] + merged[-1][2] == piece[1]:
            merged[-1] = (piece[0], merged[-1][1], merged[-1][2] + piece[2])
        else:
            merged.append(piece)
    return merged


def _arrival_facts(arrival_ns: Ints) -> ArrivalFacts:
    gaps = np.diff(arrival_ns)
    span_s = float(arrival_ns[-1] - arrival_ns[0]) / NS_PER_S
    seconds, minutes = counts_per(arrival_ns, 1.0), counts_per(arrival_ns, 60.0)
    return ArrivalFacts(
        requests=len(arrival_ns),
        span_s=span_s,
        mean_rate_per_s=(len(arrival_ns) - 1) / span_s,
        peak_second_per_s=float(seconds.max()),
        peak_minute_per_s=float(minutes.max() / min(60.0, span_s)),
        gap_cv=float(gaps.std() / gaps.mean()),
        idc_1s=_dispersion(seconds),
        idc_60s=_dispersion(minutes),
    )


def _dispersion(counts: NDArray[np.int64]) -> float | None:
    """Variance over mean of the counts of whole steps."""
    whole = counts[:-1]
    return float(whole.var() / whole.mean()) if len(whole) >= 10 else None


def _length_facts(tokens: Ints) -> dict[str, float]:
    values = np.quantile(tokens, list(SHARES.values())).tolist()
    return {"mean": float(tokens.mean()), **dict(zip(SHARES, values, strict=True))}


def _rank_correlation(first: Ints, second: Ints) -> float | None:
    import pandas as pd

    if first.min() == first.max() or second.min() == second.max():
        return None
    ranks = pd.DataFrame({"first": first, "second": second}).rank()
    return float(ranks["first"].corr(ranks["second"]))


def _oddities_of_times(arrival_ns: Ints) -> list[str]:
    oddities = []
    alone = np.unique(arrival_ns, return_counts=True)[1]
    tied = int(alone[alone > 1].sum())
    if step_ns := shared_grid_ns(arrival_ns):
        oddities.append(
            f"{len(alone):,} distinct times on a grid of {step_ns / NS_PER_S:g} s; a replay spreads arrivals over its "
            "step unless timestamp_resolution_s is 0, as do the figures of arrivals here"
        )
    elif tied:
        oddities.append(f"{tied:,} requests ({tied / len(arrival_ns):.1%}) share their instant with another")
    if len(arrival_ns) > 1 and not np.any(arrival_ns % NS_PER_S) and not step_ns:
        oddities.append("all times are whole seconds")
    if len(arrival_ns) > 1 and not np.ptp(arrival_ns):
        oddities.append("all requests arrive at one instant")
    return oddities


def _oddities_of_rows(recorded: Recorded) -> list[str]:
    table, oddities = recorded.table, []
    rows = np.stack((table.arrival_ns, table.prompt_tokens, table.output_tokens, table.client), axis=1)
    if recorded.timed and (copies := len(rows) - len(np.unique(rows, axis=0))):
        oddities.append(f"{copies:,} rows repeat another's time and lengths")
    for name in ("prompt_tokens", "output_tokens"):
        tokens: Ints = getattr(table, name)
        most = int(tokens.max())
        at_most = float(np.mean(tokens == most))
        if most == tokens.min():
            oddities.append(f"{name} are always {most:,}")
        elif at_most > 0.01 and len(tokens) >= 100:
            oddities.append(f"{at_most:.1%} of {name} are the longest, {most:,}: a limit seems to have cut them")
        if most > 1_000_000:
            oddities.append(f"{name} of up to {most:,}: more than any model takes")
    return oddities
