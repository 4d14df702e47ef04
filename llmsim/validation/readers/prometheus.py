"""vLLM's ``/metrics`` in Prometheus' text format: what a server counted, and a workload like it.

Counters and histograms grow from the server's start: two readings some time apart tell what happened in between,
one alone only what happened in all. Names of older versions (``gpu_cache_usage_perc``,
``time_per_output_token_seconds``) are known too. Of lengths within a bucket only
their mean is known; prompts and outputs are drawn apart: their correlation is not in the metrics.
"""

import math
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from llmsim.errors import ScenarioError
from llmsim.validation.measured import Measured, Statistics
from llmsim.workload import Client, ClientsWorkload
from llmsim.workload.lengths import Quantiles

TOOL = "vllm-metrics"
_PREFIX = "vllm:"
_LINE = re.compile(r"(?P<name>[a-zA-Z_:][\w:]*)(?:\{(?P<labels>.*)\})?\s+(?P<value>\S+)(?:\s+\d+)?")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_METRICS = {
    "ttft_s": ("time_to_first_token_seconds",),
    "itl_s": ("inter_token_latency_seconds", "time_per_output_token_seconds"),
    "tpot_s": ("request_time_per_output_token_seconds",),
    "e2e_s": ("e2e_request_latency_seconds",),
    "queue_s": ("request_queue_time_seconds",),
    "prompt_tokens": ("request_prompt_tokens",),
    "output_tokens": ("request_generation_tokens",),
}
PROMPTS, OUTPUTS = "request_prompt_tokens", "request_generation_tokens"


@dataclass(frozen=True, slots=True)
class Histogram:
    """Counts up to each edge, the last of which is infinite, and the sum of all values."""

    edges: tuple[float, ...]
    counts: tuple[float, ...]
    total: float

    @property
    def count(self) -> float:
        """All values."""
        return self.counts[-1]

    def less(self, before: "Histogram") -> "Histogram":
        """What was added since ``before``."""
        if before.edges != self.edges or before.count > self.count:
            raise ScenarioError("the first reading has other histogram edges, or more in them: is it the later one?")
        counts = tuple(now - then for now, then in zip(self.counts, before.counts, strict=True))
        return Histogram(self.edges, counts, self.total - before.total)

    def quantile(self, share: float) -> float:
        """As Prometheus' ``histogram_quantile``: a straight line within a bucket, the last finite edge beyond."""
        wanted, low, below = share * self.count, 0.0, 0.0
        for edge, upto in zip(self.edges, self.counts, strict=True):
            if upto >= wanted and upto > below:
                return low if math.isinf(edge) else low + (edge - low) * (wanted - below) / (upto - below)
            low, below = edge, upto
        return low

    def lengths(self) -> Quantiles:
        """A law of lengths with these counts and this mean.

        Half of each bucket's values lie before a point that is at the same part of every bucket, chosen so that the
        mean comes out; beyond the last finite edge all have its length.
        """
        low, high, share = np.array(self._buckets()).T
        middles = 0.5
        # The mean of two straight halves is (low + 2 middle + high) / 4.
        spread = np.sum(share * (high - low)) / 2
        if spread:
            missing = self.total / self.count - np.sum(share * (low + high + 2 * low)) / 4
            middles = float(np.clip(missing / spread, 0.05, 0.95))
        shares, tokens = [0.0], [float(low[0])]
        for begin, end, part in zip(low, high, share, strict=True):
            if begin > tokens[-1]:
                shares.append(shares[-1] + 1e-9)
                tokens.append(begin)
            shares += [shares[-1] + part / 2, shares[-1] + part]
            tokens += [begin + middles * (end - begin), end]
        scaled = np.array(shares) / shares[-1]
        return Quantiles(
            shares=tuple(scaled.tolist()), tokens=tuple(np.maximum(np.rint(tokens), 1).astype(int).tolist())
        )

    def _buckets(self) -> list[tuple[float, float, float]]:
        """Least and largest whole number, and share of all values, of each bucket that has some."""
        last = max((edge for edge in self.edges if math.isfinite(edge)), default=1.0)
        found, low, below = [], 0.0, 0.0
        for edge, upto in zip(self.edges, self.counts, strict=True):
            high = min(edge, last)
            if upto > below:
                found.append((min(low + 1, high), high, (upto - below) / self.count))
            low, below = high, upto
        return found


@dataclass(frozen=True, slots=True)
class ServerMetrics:
    """One reading, summed over engines and models; names without ``vllm:``."""

    values: dict[str, float]
    """Counters and gauges."""
    histograms: dict[str, Histogram]
    info: dict[str, str]
    """Labels of ``cache_config_info``: block_size, num_gpu_blocks ..."""

    def since(self, before: "ServerMetrics") -> "ServerMetrics":
        """What was counted since an earlier reading; gauges as they are now. Raises ScenarioError if it is later."""
        counted = {
            name: value - before.values.get(name, 0.0) if name.endswith("_total") else value
            for name, value in self.values.items()
        }
        histograms = {
            name: histogram.less(before.histograms[name]) if name in before.histograms else histogram
            for name, histogram in self.histograms.items()
        }
        return ServerMetrics(counted, histograms, self.info)

    def measured(self, duration_s: float | None = None) -> Measured:
        """As a benchmark's run; percentiles are as coarse as the histograms."""
        found = {}
        for metric, names in _METRICS.items():
            histogram = next((self.histograms[name] for name in names if name in self.histograms), None)
            if histogram is not None and histogram.count:
                found[metric] = _statistics(histogram)
        completed = self.histograms[OUTPUTS].count if OUTPUTS in self.histograms else 0.0
        prompts, outputs = (self.values.get(f"{name}_tokens_total") for name in ("prompt", "generation"))
        totals = {"completed": completed, "prompt_tokens": prompts, "output_tokens": outputs, "duration_s": duration_s}
        if duration_s:
            totals["requests_per_s"] = completed / duration_s
            totals["output_tokens_per_s"] = None if outputs is None else outputs / duration_s
        return Measured(
            tool=TOOL,
            label="metrics",
            totals={name: value for name, value in totals.items() if value is not None},
            statistics=found,
            flags=("percentiles are interpolated in buckets; TTFT begins at the server, without the client's network",),
        )

    def workload(self, rate_per_s: float, requests: int) -> ClientsWorkload:
        """A workload like what was counted, with Poisson arrivals at this rate, and nothing shared between prompts.

        Raises ScenarioError without the histograms of lengths.
        """
        missing = [name for name in (PROMPTS, OUTPUTS) if not self._count(name)]
        if missing:
            raise ScenarioError(f"metrics: no histogram {', '.join(missing)} with requests in it")
        return ClientsWorkload(
            clients=(
                Client(
                    name="metrics",
                    rate_per_s=rate_per_s,
                    prompt_tokens=self.histograms[PROMPTS].lengths(),
                    output_tokens=self.histograms[OUTPUTS].lengths(),
                ),
            ),
            requests=requests,
        )

    def _count(self, name: str) -> float:
        return self.histograms[name].count if name in self.histograms else 0.0


def read_metrics(path: Path) -> ServerMetrics:
    """A reading of ``/metrics`` saved to a file. Raises ScenarioError naming file and line."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ScenarioError(f"{path}: cannot be read: {error}") from None
    return parse_metrics(text, str(path))


def parse_metrics(text: str, where: str) -> ServerMetrics:
    """A reading of ``/metrics``. Raises ScenarioError naming ``where`` and the line."""
    values: dict[str, float] = {}
    buckets: dict[str, dict[float, float]] = {}
    info: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        full_name, labels, value = _sample(line, f"{where} line {number}")
        if not full_name.startswith(_PREFIX):
            continue
        name = full_name.removeprefix(_PREFIX)
        if name == "cache_config_info":
            info |= labels
        elif "le" in labels:
            series = buckets.setdefault(name.removesuffix("_bucket"), {})
            edge = float(labels["le"])
            series[edge] = series.get(edge, 0.0) + value
        else:
            values[name] = values.get(name, 0.0) + value
    if not values and not buckets:
        raise ScenarioError(f"{where}: has no metrics of vLLM (names that begin with vllm:)")
    histograms = {}
    for name, series in buckets.items():
        edges = tuple(sorted(series))
        histograms[name] = Histogram(edges, tuple(series[edge] for edge in edges), values.pop(f"{name}_sum", 0.0))
    return ServerMetrics(values, histograms, info)


def _sample(line: str, where: str) -> tuple[str, dict[str, str], float]:
    """Name, labels and value of a line."""
    match = _LINE.fullmatch(line.strip())
    try:
        if match is None:
            raise ValueError
        value = float(match["value"])
    except ValueError:
        raise ScenarioError(f"{where}: {line[:80]!r} is not a sample of Prometheus' text format") from None
    return match["name"], dict(_LABEL.findall(match["labels"] or "")), value


def _statistics(histogram: Histogram) -> Statistics:
    return {
        "mean": histogram.total / histogram.count,
        **{f"p{share}": histogram.quantile(share / 100) for share in (50, 90, 95, 99)},
    }
