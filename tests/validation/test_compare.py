"""Scores against measured servers: what they are made of, and gates that hold on measured tables.

The gates are on every so-many-th row, so that the tests stay short; ``llmsim validate`` runs them all.
"""

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from llmsim.cli import main
from llmsim.validation.compare import Scored, TableErrors, grouped, statistics, validate
from llmsim.validation.facts import Fact, Prediction
from llmsim.validation.tables import read_rows, read_table
from tests.validation.factories import MEASURED, STEP, a_file


class Answer:
    """A case that always predicts 1."""

    def predict(self, accelerator: object = None) -> Prediction:
        return Prediction({"step_mean": 1.0})


def a_scored(value: float, predicted: float) -> Scored:
    fact = Fact(0, "step_mean", value, Answer(), "bench", "h100-sxm", "llama-3.1-8b", "batch 1")
    return Scored(fact, predicted, "hbm")


def a_part(folder: Path, source: Path, every: int, **wanted: str) -> Path:
    """Every so-many-th of the rows of a table that have these values."""
    rows = [row for row in read_rows(source) if all(row[key] == value for key, value in wanted.items())]
    return a_file(folder / source.name, [dict(row) for row in rows[::every]])


def medians(table: TableErrors) -> dict[str, float]:
    for name, rows in grouped(table.scored, "metric").items():
        print(name, {key: round(value, 3) for key, value in statistics(rows).items()})
    return {name: statistics(rows)["median"] for name, rows in grouped(table.scored, "metric").items()}


def test_statistics_are_of_relative_errors() -> None:
    found = statistics([a_scored(1, 1.1), a_scored(2, 1.8), a_scored(4, 4.8)])
    assert found["n"] == 3
    assert found["median"] == pytest.approx(0.1)
    assert found["mean"] == pytest.approx(0.4 / 3)
    assert found["bias"] == pytest.approx(0.2 / 3)
    assert found["p90"] == pytest.approx(np.percentile([0.1, 0.1, 0.2], 90))


def test_the_json_has_what_it_promises(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [STEP, STEP | {"batch": 8}, STEP | {"phase": "warm"}]
    path = a_file(tmp_path / "steps.csv", rows)
    assert main(["validate", str(path), "--json", "--html", str(tmp_path / "errors.html")]) == 0
    (table,) = json.loads(capsys.readouterr().out)["tables"]
    assert set(table) == {"file", "kind", "rows", "scored", "skipped", "metrics", "by", "worst"}
    assert (table["kind"], table["rows"], table["scored"], table["skipped"]) == ("step times", 3, 2, {"load": 1})
    assert set(table["by"]) == {"source", "hardware", "model"}
    assert set(table["metrics"]["decode_step_mean"]) == {"n", "median", "mean", "p90", "bias"}
    assert len(table["worst"]) == 2
    assert "Furthest off" in (tmp_path / "errors.html").read_text()


def test_the_table_in_the_terminal_tells_what_was_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [MEASURED, MEASURED | {"model": "acme/secret-13b"}]
    assert main(["validate", str(a_file(tmp_path / "measured.csv", rows))]) == 0
    printed = capsys.readouterr().out
    assert "1 of 2 rows scored" in printed
    assert "left out: 1, model not in the catalogue" in printed


def test_shipped_kernels_and_pools_are_near() -> None:
    shipped = Path(validate.__code__.co_filename).parent / "shipped"
    steps, pools = validate([shipped / "kernel_step_times.csv", shipped / "kv_capacity.csv"], processes=1)
    for name, median in medians(steps).items():
        assert median <= 0.12, name
    assert medians(pools)["kv_tokens_total"] <= 0.03


def test_closed_loops_are_near(shared_data: Path, tmp_path: Path) -> None:
    """InferenceX through aiconfigurator, short answers."""
    part = a_part(tmp_path, shared_data / "measured.csv", 5, source_id="S01_aic_silicon", output_tokens="1024.0")
    (table,) = validate([part], processes=1)
    assert medians(table)["tpot_mean"] <= 0.12
    assert table.rows_scored == table.reading.rows


def test_most_rows_fit_for_a_gate_can_be_scored(shared_data: Path, tmp_path: Path) -> None:
    """At least 90 % of the rows marked ``core`` have a case to simulate."""
    reading = read_table(a_part(tmp_path, shared_data / "measured.csv", 1, core="True"))
    print(f"{len(reading.facts)} of {reading.rows}", {key.name: len(rows) for key, rows in reading.skipped.items()})
    assert len(reading.facts) >= 0.9 * reading.rows


def test_below_saturation_the_load_curve_is_near(shared_data: Path, tmp_path: Path) -> None:
    """Llama-3.1-8B on H100 in four settings of vLLM 0.11, up to 80 requests/s."""
    with (shared_data / "load_curve_llama31_8b_h100.csv").open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if "v0" not in row["cfg"] and "eagle" not in row["cfg"]]
    chosen = [row for row in rows if 30 < float(row["req_rate"]) < 80][::2]
    (table,) = validate([a_file(tmp_path / "load_curve_llama31_8b_h100.csv", chosen)], processes=1)
    found = medians(table)
    assert found["tpot_mean"] <= 0.12
    assert found["request_throughput_mean"] <= 0.05


def test_requests_of_a_server_are_near(shared_data: Path) -> None:
    """vLLM 0.19 on an RTX PRO 6000 and, with the efficiencies of an L40S, on an RTX 4090."""
    folder = shared_data / "server_traces"
    tables = validate([folder / f"llmservingsim_{name}_Llama-3.1-8B.csv" for name in ("RTXPRO6000", "RTX4090")], 1)
    for table in tables:
        found = medians(table)
        assert table.rows_scored == 300
        assert found["tpot_mean"] <= 0.2
        assert found["output_throughput_mean"] <= 0.2
