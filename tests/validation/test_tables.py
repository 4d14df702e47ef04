"""Measured tables: which kind each is, what rows become, and why some are left out."""

from pathlib import Path
from typing import Any

import pytest

from llmsim.errors import ScenarioError
from llmsim.validation.facts import Fact, Reason
from llmsim.validation.served import Load, Served
from llmsim.validation.tables import KINDS, read_table, shipped
from tests.validation.factories import MEASURED, STEP, a_file


def a_fact(folder: Path, **given: Any) -> Fact:
    """The fact of one row of measured values."""
    return read_table(a_file(folder / "measured.csv", [MEASURED | given])).facts[0]


def the_reason(folder: Path, **given: Any) -> Reason:
    """Why a row of measured values is left out."""
    reading = read_table(a_file(folder / "measured.csv", [MEASURED | given]))
    assert not reading.facts
    return next(iter(reading.skipped))


def test_a_kind_is_recognised_by_its_columns(tmp_path: Path) -> None:
    trace = {"arrival_s": 0.0, "input_tokens": 9, "output_tokens": 5, "ttft_ms": 20, "e2e_ms": 90, "model": "qwen3-8b"}
    rows = {
        "measured values": MEASURED | {"colour": "red"},
        "step times": STEP,
        "KV capacities": {"model": "qwen3-14b", "gpu": "H100", "reported_kv_tokens": 1, "gpu_memory_utilization": 0.9},
        "load curves": {"req_rate": 1, "isl": 200, "osl": 62, "ttft": 0.03, "model": "qwen3-8b", "hardware": "h100"},
        "server traces": trace | {"hardware": "h100-sxm"},
    }
    assert list(rows) == [kind.name for kind in KINDS]
    for name, row in rows.items():
        assert read_table(a_file(tmp_path / "table.csv", [row])).kind == name


def test_an_unknown_table_is_told_what_it_lacks(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match=r"step times \(lacks batch, context, latency_ms, phase\)"):
        read_table(a_file(tmp_path / "table.csv", [{"model": "llama-3.1-8b", "speed": 3}]))
    with pytest.raises(ScenarioError, match="cannot be read"):
        read_table(tmp_path / "none.csv")


def test_units_and_names_become_those_of_the_simulator(tmp_path: Path) -> None:
    fact = a_fact(tmp_path, metric="ttft_ms", statistic="median", value=250)
    assert (fact.metric, fact.value) == ("ttft_p50", 0.25)
    assert (fact.hardware, fact.model) == ("h100-sxm", "llama-3.1-8b")


def test_throughput_of_each_accelerator_is_multiplied(tmp_path: Path) -> None:
    given = {"metric": "throughput_output_tok_s", "scope": "per_gpu", "value": 1000, "n_gpus": 4, "tp": 4}
    assert a_fact(tmp_path, **given).value == 4000


def test_engine_settings_are_read_from_the_row(tmp_path: Path) -> None:
    text = "chunked_prefill=True; max_num_batched_tokens=512; max_num_seqs=128; prefix_caching=False"
    case = a_fact(tmp_path, scheduler=text, engine_version="0.10.1", weight_dtype="fp8").case
    assert isinstance(case, Served)
    engine = case.engine
    assert (engine.max_num_batched_tokens, engine.max_num_seqs) == (512, 128)
    assert not engine.enable_prefix_caching
    assert not engine.async_scheduling
    assert engine.quantization == "fp8"


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"model": "acme/secret-13b"}, Reason.model),
        ({"hardware": "Abacus"}, Reason.accelerator),
        ({"hardware": "H100-40GB"}, Reason.accelerator),
        ({"metric": "joules"}, Reason.metric),
        ({"value": "n/a"}, Reason.value),
        ({"value": ""}, Reason.value),
        ({"concurrency": ""}, Reason.setting),
        ({"load_kind": "warm-up"}, Reason.load),
        ({"engine": "llama.cpp"}, Reason.engine),
        ({"weight_dtype": "ternary"}, Reason.dtype),
        ({"pp": 2}, Reason.parallelism),
        ({"scheduler": "P/D disaggregated 1P1D"}, Reason.disaggregated),
        ({"scheduler": "V1 with EAGLE-3"}, Reason.speculative),
        ({"scheduler": "num_scheduler_steps=8"}, Reason.multi_step),
    ],
)
def test_rows_are_left_out_for_a_reason(tmp_path: Path, given: dict[str, Any], reason: Reason) -> None:
    assert the_reason(tmp_path, **given) is reason


def test_the_host_floor_of_an_engine_without_graphs_is_taken_from_the_row_that_tells_it(tmp_path: Path) -> None:
    given = MEASURED | {
        "engine_version": "2023 fork",
        "model": "llama-2-70b",
        "load_kind": "static batch",
        "metric": "decode_step_ms",
        "statistic": "median",
        "batch_size": 1,
        "output_tokens": 128,
        "tp": 8,
        "n_gpus": 8,
    }
    rows = [given | {"input_tokens": 128, "value": 40}, given | {"input_tokens": 2048, "value": 41}]
    reading = read_table(a_file(tmp_path / "measured.csv", rows))
    assert list(reading.skipped) == [Reason.floor]
    (fact,) = reading.facts
    assert fact.case.predict().values["decode_step_p50"] == pytest.approx(0.04, rel=0.1)


def test_a_closed_loop_keeps_so_many_in_flight() -> None:
    table = Load(requests=12, prompt_tokens=100, output_tokens=10, concurrency=3).generate(0)
    assert table.after.tolist() == [-1, -1, -1, *range(9)]


def test_questions_after_shared_prefixes_come_again() -> None:
    load = Load(40, 200, 10, shared_prefix_tokens=128, shared_prefixes=4, questions=5)
    streams = load.generate(0).segment_stream.reshape(-1, 2)
    assert len({tuple(pair) for pair in streams.tolist()}) == 20
    assert len(set(streams[:, 0].tolist())) == 4
    assert not set(streams[:, 0].tolist()) & set(streams[:, 1].tolist())


def test_every_shipped_fact_names_its_source() -> None:
    readings = [read_table(path) for path in shipped()]
    assert sum(reading.rows for reading in readings) == 300
    assert {reading.kind for reading in readings} == {kind.name for kind in KINDS} - {"server traces"}
    assert all(fact.source for reading in readings for fact in reading.facts)
