"""Tables of load curves: stages of a benchmark at rising rates, one a row.

The accelerator and the model are columns, or parts of the file's name (``load_curve_llama31_8b_h100``). Settings of
the public curve of kubernetes-sigs/inference-perf (demos/kubecon-na-2025) are in its manifests: vLLM 0.11, at most 512
tokens a request, 128 requests at once; equally spaced arrivals from 44 workers with at most 10 requests in flight each;
100 prompts of 128 shared and 64 own tokens, sent again and again.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from llmsim.validation import names
from llmsim.validation.facts import Fact, Reading, Reason, SkippedRowError
from llmsim.validation.rows import Row, number, required, whole
from llmsim.validation.served import Engine, Load, Served

KIND = "load curves"
COLUMNS = ("req_rate", "isl", "osl")

WORKERS = 440
"""Requests in flight at most, as Little's law confirms: throughput times E2E is 389 to 432 when saturated."""
SHARED, QUESTIONS, PREFIXES = 128, 10, 10
"""Tokens of the shared prefixes, how many there are, and questions to each."""

CHANGES: dict[str, dict[str, Any]] = {
    "v0_engine": {"scheduler": "vllm_v0", "engine_version": "0.7"},
    "batch_size": {"max_num_seqs": 192},
    "chunking_and_prefix_caching": {"enable_prefix_caching": True, "max_num_batched_tokens": 8192},
    "quantization": {"enable_prefix_caching": True, "max_num_batched_tokens": 8192},
}
"""What each configuration changes of the first. ``quantization`` changes nothing more than caching does: alone on the
server a token takes 7.25 ms with it and 7.41 without, where 16-bit weights are read in 4.8 ms and 8-bit ones in 2.4."""

METRICS = {"ttft": "ttft_mean", "tpot_calc": "tpot_mean", "e2e": "e2e_mean", "out": "output_throughput_mean"}
"""Columns in seconds and tokens a second. A column ``tpot`` may count events of a stream and is not compared; TPOT is
computed from E2E and TTFT where ``tpot_calc`` is absent."""


def read(rows: Sequence[Row], reading: Reading) -> None:
    """Add the facts of a table to ``reading``."""
    for index, row in enumerate(rows):
        try:
            reading.facts.extend(_facts(index, row, reading.file))
        except SkippedRowError as skipped:
            reading.skip(skipped)


def _facts(index: int, row: Row, file: str) -> Iterator[Fact]:
    case = _case(row, file)
    measured = {metric: number(row, column) for column, metric in METRICS.items()}
    if measured["tpot_mean"] is None and measured["ttft_mean"] and measured["e2e_mean"]:
        measured["tpot_mean"] = (measured["e2e_mean"] - measured["ttft_mean"]) / (required(row, "osl") - 1)
    measured["request_throughput_mean"] = number(row, "done")
    found = {metric: value for metric, value in measured.items() if value is not None and value > 0}
    if not found:
        raise SkippedRowError(Reason.value, "no latency and no throughput")
    for metric, value in found.items():
        yield Fact(
            row=index,
            metric=metric,
            value=value,
            case=case,
            source=row.get("source_id") or Path(file).stem,
            hardware=case.engine.accelerator,
            model=case.engine.model,
            conditions=f"{row.get('cfg', '')}, rate {required(row, 'req_rate'):g}",
        )


def _case(row: Row, file: str) -> Served:
    configuration = row.get("cfg", "").lower()
    if "eagle" in configuration:
        raise SkippedRowError(Reason.speculative, configuration)
    model, accelerator = named(row, file)
    engine = Engine(
        model=model,
        accelerator=accelerator,
        max_num_seqs=128,
        max_num_batched_tokens=8192,
        max_model_len=512,
        async_scheduling=False,
        engine_version="0.11",
        sampling="top_p",
        enable_prefix_caching=False,
    )
    change = configuration.removeprefix("vllm").lstrip("+")
    if change and change not in CHANGES:
        raise SkippedRowError(Reason.setting, configuration)
    engine = replace(engine, **CHANGES.get(change, {}))
    rate = required(row, "req_rate")
    prompts = required(row, "isl")
    load = Load(
        requests=whole(row, "n") or round(60 * rate),
        prompt_tokens=prompts,
        output_tokens=required(row, "osl"),
        concurrency=WORKERS,
        rate_per_s=rate,
        constant=True,
        shared_prefix_tokens=SHARED if prompts > SHARED else 0,
        shared_prefixes=PREFIXES,
        questions=QUESTIONS,
    )
    return Served(engine, load)


def named(row: Row, file: str) -> tuple[str, str]:
    """Model and accelerator of a table: from columns, else from parts of the file's name. Raises SkippedRowError."""
    model, accelerator = row.get("model", ""), row.get("hardware") or row.get("gpu", "")
    parts = re.split(r"_", Path(file).stem)
    chunks = [" ".join(parts[a:b]) for a in range(len(parts)) for b in range(len(parts), a, -1)]
    if not model:
        model = next((chunk for chunk in chunks if _known(names.model, _dotted(chunk))), "")
        model = _dotted(model)
    if not accelerator:
        accelerator = next((each for chunk in chunks if _known(names.accelerator, each := _counted(chunk))), "")
    return names.model(model), names.accelerator(accelerator)


def _dotted(name: str) -> str:
    """``llama31 8b`` as ``llama3.1-8b``."""
    return re.sub(r"llama ?3(\d)\b", r"llama-3.\1", name).replace(" ", "-")


def _counted(name: str) -> str:
    """``H100x8`` as ``H100``."""
    return re.sub(r"x\d+$", "", name)


def _known(find: Callable[[str], str], name: str) -> bool:
    try:
        find(name)
    except SkippedRowError:
        return False
    return True
