"""Tables of requests as a real server served them, one a row: replayed as they came, compared as distributions.

Model and accelerator are columns or parts of the file's name. A file beside it with the same stem and the suffix
``.meta.json`` may hold ``model``, ``engine_kwargs`` (vLLM's arguments) and ``kv_cache.num_gpu_blocks``.
"""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from llmsim.hardware import AcceleratorSpec
from llmsim.results.results import Results
from llmsim.units import NS_PER_S
from llmsim.validation.engines import ASYNC_SINCE
from llmsim.validation.facts import Fact, Prediction, Reading, Reason, SkippedRowError
from llmsim.validation.load_curves import named
from llmsim.validation.rows import Row, number, version
from llmsim.validation.served import Engine, Replay, Served, diagnosis

if TYPE_CHECKING:
    import pandas as pd

KIND = "server traces"
COLUMNS = ("input_tokens", "output_tokens")
ARRIVALS = ("queued_s", "arrival_s", "arrival_s_reconstructed")
"""The first there is says when requests came; ``queued_s`` is after the API server."""

Floats = NDArray[np.float64]

DSTACK = {"max_num_seqs": 512, "max_num_batched_tokens": 512, "async_scheduling": False, "engine_version": "0.6"}
"""Engine settings of dstack's runs of Llama-3.1-405B (vLLM 0.6.3, chunked prefill), whose files do not state them."""

STATISTICS: dict[str, Callable[[Floats], Any]] = {
    "mean": np.mean,
    "p50": np.median,
    "p90": lambda values: np.percentile(values, 90),
    "p99": lambda values: np.percentile(values, 99),
}


@dataclass(frozen=True, slots=True)
class Replayed:
    """A server and the requests it was sent; figures are of those that were answered."""

    engine: Engine
    replay: Replay
    answered: tuple[bool, ...]

    def predict(self, accelerator: AcceleratorSpec | None = None) -> Prediction:
        """Simulate it. Raises ScenarioError when the model does not fit."""
        results = self.run(accelerator)
        requests = results.requests
        found = figures(requests[np.array(self.answered) & (requests.outcome == "finished").to_numpy()])
        return Prediction(found, diagnosis(results.figures()))

    def run(self, accelerator: AcceleratorSpec | None = None) -> Results:
        """The results of the whole run."""
        return Served(self.engine, self.replay).run(accelerator)


def read(rows: Sequence[Row], reading: Reading) -> None:
    """Add the facts of a table to ``reading``: statistics over its rows, which count as row 0."""
    try:
        case, measured = case_of(rows, Path(reading.file)), observed(rows)
    except SkippedRowError as skipped:
        for _ in rows:
            reading.skip(skipped)
        return
    for _ in range(len(rows) - sum(case.answered)):
        reading.skip(SkippedRowError(Reason.value, "no token was generated"))
    where = {
        "source": Path(reading.file).stem,
        "hardware": case.engine.accelerator,
        "model": case.engine.model,
        "conditions": f"{len(rows)} requests",
    }
    values = figures(measured[measured.output_tokens > 0])
    reading.facts.extend(Fact(row=0, metric=name, value=value, case=case, **where) for name, value in values.items())


def case_of(rows: Sequence[Row], file: Path) -> Replayed:
    """The engine, and the requests of a table in order of arrival. Raises SkippedRowError.

    A request without a token was sent an end of sequence, which is a token too.
    """
    measured = observed(rows)
    since = np.rint((measured.arrival_s - measured.arrival_s.min()) * NS_PER_S).astype(np.int64)
    replay = Replay(
        tuple(since.tolist()),
        tuple(measured.prompt_tokens.astype(int).tolist()),
        tuple(measured.output_tokens.clip(lower=1).astype(int).tolist()),
    )
    return Replayed(_engine(rows, file), replay, tuple((measured.output_tokens > 0).tolist()))


def observed(rows: Sequence[Row]) -> "pd.DataFrame":
    """What was measured of each request, in order of arrival, with the columns of ``Results.requests``:
    ``arrival_s``, ``first_token_s``, ``finish_s``, ``prompt_tokens`` and ``output_tokens``. Raises SkippedRowError."""
    import pandas as pd

    arrival = _column(rows, next((name for name in ARRIVALS if name in rows[0]), ARRIVALS[0]))
    if "first_token_s" in rows[0]:
        first, last = _column(rows, "first_token_s"), _column(rows, "last_token_s")
    else:
        first, last = (arrival + _column(rows, name, 0.0) * 1e-3 for name in ("ttft_ms", "e2e_ms"))
    prompts, outputs = (_column(rows, name) for name in COLUMNS)
    columns = {
        "arrival_s": arrival,
        "first_token_s": first,
        "finish_s": last,
        "prompt_tokens": prompts,
        "output_tokens": outputs,
    }
    return pd.DataFrame(columns).sort_values("arrival_s", kind="stable", ignore_index=True)


def latencies(requests: "pd.DataFrame") -> dict[str, Floats]:
    """Seconds of each request by metric: ttft, tpot (of more than one token) and e2e."""
    arrival, first, last, outputs = (
        requests[name].to_numpy(np.float64) for name in ("arrival_s", "first_token_s", "finish_s", "output_tokens")
    )
    several = outputs > 1
    return {
        "ttft": first - arrival,
        "tpot": ((last - first)[several]) / (outputs[several] - 1),
        "e2e": last - arrival,
    }


def figures(requests: "pd.DataFrame") -> dict[str, float]:
    """Statistics of latencies, and the output throughput, of measured or simulated requests alike."""
    found = {
        f"{metric}_{statistic}": float(of(values))
        for metric, values in latencies(requests).items()
        for statistic, of in STATISTICS.items()
    }
    duration_s = requests.finish_s.max() - requests.arrival_s.min()
    return found | {"output_throughput_mean": float(requests.output_tokens.sum() / duration_s)}


def _engine(rows: Sequence[Row], file: Path) -> Engine:
    aside = file.with_suffix(".meta.json")
    stated = json.loads(aside.read_text(encoding="utf-8")) if aside.exists() else {}
    model, accelerator = named({**rows[0], "model": stated.get("model", rows[0].get("model", ""))}, file.name)
    arguments = stated.get("engine_kwargs", {})
    known = ("tensor_parallel_size", "max_num_seqs", "max_num_batched_tokens", "max_model_len")
    given: dict[str, Any] = {key: arguments[key] for key in known if arguments.get(key) is not None}
    if not stated:
        given = {"tensor_parallel_size": _count(file.stem)}
        given |= DSTACK if file.stem.startswith("dstack") else {}
    else:
        release = version(stated.get("vllm_version", "")) or ASYNC_SINCE
        given["async_scheduling"] = release >= ASYNC_SINCE
        given["engine_version"] = f"{release[0]}.{release[1]}"
    return Engine(
        model=model,
        accelerator=accelerator,
        quantization="fp8" if "fp8" in file.stem.lower() else None,
        num_gpu_blocks=stated.get("kv_cache", {}).get("num_gpu_blocks"),
        in_engine="queued_s" in rows[0],
        **given,
    )


def _count(stem: str) -> int:
    """How many accelerators a name such as ``H100x8`` states; 1 otherwise."""
    found = re.search(r"x(\d+)(?=_|$)", stem)
    return int(found[1]) if found else 1


def _column(rows: Sequence[Row], name: str, absent: float | None = None) -> Floats:
    values = [number(row, name) for row in rows]
    if absent is None and any(value is None for value in values):
        raise SkippedRowError(Reason.setting, name)
    return np.array([absent if value is None else value for value in values], np.float64)
