"""Tables of measured values, one a row: a metric of a server under some load."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from llmsim.model import load_model
from llmsim.validation import names
from llmsim.validation.engines import conditions, engine_of
from llmsim.validation.facts import Case, Fact, Reading, Reason, SkippedRowError
from llmsim.validation.rows import Row, number, required, whole
from llmsim.validation.served import WAVES, Engine, Load, Served

KIND = "measured values"
COLUMNS = ("metric", "value", "model", "hardware", "load_kind")

PROMPT_TOKENS = 256
"""Where the length of prompts is not published: chat prompts of a few hundred tokens."""
HISTORY_PROMPT_TOKENS = 450
"""The same for ML.ENERGY 3.0, which asks each turn of a conversation of LM Arena with all that was said before
(ml-energy/benchmark, ``mlenergy/llm/datasets.py``): half as many answers as there are questions, by judgement. Its 99 %
quantiles of ITL, which prompts make, are met with it."""
REQUESTS_PER_USER = 10
"""In a closed loop, as InferenceX sends for each of its users."""
SERVER_S, WARM_UP_S = 180.0, 90.0
"""Simulated of a Poisson load without end, and what of it is left out of the figures."""

METRICS = {
    "ttft_ms": ("ttft", 1e-3),
    "tpot_ms": ("tpot", 1e-3),
    "itl_ms": ("itl", 1e-3),
    "e2e_ms": ("e2e", 1e-3),
    "prefill_time_ms": ("prefill", 1e-3),
    "decode_step_ms": ("decode_step", 1e-3),
    "batch_e2e_ms": ("batch_e2e", 1e-3),
    "makespan_s": ("makespan", 1.0),
    "throughput_output_tok_s": ("output_throughput", 1.0),
    "req_s": ("request_throughput", 1.0),
}
"""Metrics by the name a table gives them, and the factor to SI units."""

STATISTICS = {"mean(unstated)": "mean", "median": "p50", "": "mean"}


def read(rows: Sequence[Row], reading: Reading) -> None:
    """Add the facts of a table to ``reading``."""
    floors = _floors(rows)
    for index, row in enumerate(rows):
        try:
            reading.facts.append(_fact(index, row, floors))
        except SkippedRowError as skipped:
            reading.skip(skipped)


Floors = dict[tuple[str, str, str, str], tuple[int, float]]
FLOORS = ("decode_step_ms", "prefill_time_ms")


def _floors(rows: Sequence[Row]) -> Floors:
    """Least times of engines without CUDA graphs, by metric, source, model and hardware: the row that tells, and
    seconds.

    The row is that of one request with the shortest prompt on the most ranks: the least work for kernels.
    """
    found: dict[tuple[str, str, str, str], tuple[float, float, int, float]] = {}
    for index, row in enumerate(rows):
        try:
            if not (row["metric"] in FLOORS and "2023" in row.get("engine_version", "")):
                continue
            if required(row, "batch_size") > 1:
                continue
            key = (row["metric"], row.get("source_id", ""), row["model"], row["hardware"])
            work = (-required(row, "tp"), required(row, "input_tokens"), index, required(row, "value") * 1e-3)
        except SkippedRowError:
            continue
        found[key] = min(found.get(key, work), work)
    return {key: (index, floor_s) for key, (_, _, index, floor_s) in found.items()}


def _fact(index: int, row: Row, floors: Floors) -> Fact:
    if row["metric"] not in METRICS:
        raise SkippedRowError(Reason.metric, row["metric"])
    metric, factor = METRICS[row["metric"]]
    statistic = STATISTICS.get(row.get("statistic", ""), row.get("statistic", ""))
    value = number(row, "value")
    if value is None or value <= 0:
        raise SkippedRowError(Reason.value, row["value"])
    if row.get("scope") == "per_gpu" and metric.endswith("throughput"):
        value *= required(row, "n_gpus")
    case = _case(row, floors, index)
    return Fact(
        row=index,
        metric=f"{metric}_{statistic}",
        value=value * factor,
        case=case,
        source=row.get("source_id") or row.get("source", ""),
        hardware=names.accelerator(row["hardware"]),
        model=names.model(row["model"]),
        conditions=conditions(row),
    )


def _case(row: Row, floors: Floors, index: int) -> Case:
    kind = row["load_kind"].lower()
    outputs = required(row, "output_tokens")
    unknown = HISTORY_PROMPT_TOKENS if kind.startswith("saturating") else PROMPT_TOKENS
    prompts = number(row, "input_tokens") or unknown
    engine = engine_of(row, prompts + outputs)
    if kind.startswith("static batch"):
        return _static(row, engine, prompts, outputs, floors, index)
    if kind.startswith("closed-loop"):
        users = round(required(row, "concurrency"))
        lengths: Literal["nominal", "fixed"] = (
            "nominal" if "inferencex" in row.get("scheduler", "").lower() else "fixed"
        )
        requests = whole(row, "n_requests") or REQUESTS_PER_USER * users
        return Served(engine, Load(requests, prompts, outputs, users, lengths=lengths))
    if kind.startswith(("poisson", "open-loop")):
        rate = required(row, "rate_rps")
        stated = whole(row, "n_requests")
        load = Load(stated or round(SERVER_S * rate), prompts, outputs, rate_per_s=rate, lengths="varied")
        return Served(engine, load, warm_up_s=0.0 if stated else WARM_UP_S)
    if kind.startswith(("offline", "saturating")):
        return _backlog(row, engine, prompts, outputs)
    raise SkippedRowError(Reason.load, row["load_kind"])


def _static(row: Row, engine: Engine, prompts: float, outputs: float, floors: Floors, index: int) -> Case:
    """A batch that starts together. Its KV fitted on the server, so that the pool is as large as it needs."""
    batch = round(required(row, "batch_size"))
    if engine.scheduler != "static" and engine.max_num_seqs is None and not engine.enforce_eager:
        return Served(replace(engine, in_engine=True), Load(batch, prompts, outputs))
    if engine.enforce_eager:
        engine = _with_floors(row, engine, floors, index)
    blocks = batch * (int(prompts + outputs) // 16 + 2) + 2
    longest = int(prompts + outputs) + 1
    if longest > load_model(engine.model).max_position_embeddings:
        engine = replace(engine, max_model_len=longest)
    engine = replace(engine, scheduler="static", max_num_seqs=batch, num_gpu_blocks=blocks, in_engine=True)
    return Served(engine, Load(batch, prompts, outputs))


def _with_floors(row: Row, engine: Engine, floors: Floors, index: int) -> Engine:
    """The engine with its host's times: of the launches of a layer, and what a prompt takes beyond them."""
    decode, prefill = (
        floors.get((metric, row.get("source_id", ""), row["model"], row["hardware"])) for metric in FLOORS
    )
    for teller, floor_s in filter(None, (decode, prefill)):
        if teller == index:
            raise SkippedRowError(Reason.floor, f"{floor_s * 1e3:.1f} ms")
    if decode is None:
        return engine
    prompt_s = max(0.0, prefill[1] - decode[1]) if prefill else 0.0
    layer_s = decode[1] / load_model(engine.model).num_hidden_layers
    return replace(engine, eager_layer_s=layer_s, eager_prefill_s=prompt_s)


def _backlog(row: Row, engine: Engine, prompts: float, outputs: float) -> Case:
    """More requests than the engine takes at once, ``WAVES`` times as many; real requests differ in length."""
    real = "saturating" in row["load_kind"] or not row.get("input_tokens", "")
    together = engine.max_num_seqs or 256
    stated = whole(row, "n_requests") or WAVES * together * engine.replicas
    requests = max(1, min(stated, WAVES * together * engine.replicas))
    load = Load(requests, prompts, outputs, lengths="varied" if real else "fixed")
    return Served(engine, load, backlog=requests > together * engine.replicas)
