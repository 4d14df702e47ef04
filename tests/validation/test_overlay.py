"""A measured trace beside its simulation, row by row."""

from pathlib import Path

import numpy as np
import pytest

from llmsim.errors import ScenarioError
from llmsim.report.html import OVERLAYS, write_report
from llmsim.report.validation_page import validation_page
from llmsim.validation.compare import validate
from llmsim.validation.overlay import beside, overlay
from llmsim.validation.served import Engine, Replay, Served
from tests.validation.factories import STEP, a_file

A_REPLAY = Replay(tuple(range(0, 2_000_000_000, 50_000_000)), (600, 90) * 20, (4, 30, 70, 9) * 10)


def a_served_trace(folder: Path) -> Path:
    """A file as a server would log it that behaves as the simulation does."""
    requests = Served(Engine("llama-3.1-8b", "h100-sxm"), A_REPLAY).run().requests
    rows = [
        {
            "arrival_s": row.arrival_s,
            "input_tokens": row.prompt_tokens,
            "output_tokens": row.output_tokens,
            "ttft_ms": (row.first_token_s - row.arrival_s) * 1e3,
            "e2e_ms": (row.finish_s - row.arrival_s) * 1e3,
        }
        for row in requests.itertuples()
    ]
    return a_file(folder / "mine_H100_llama3.1-8b.csv", rows)


def test_a_server_like_the_simulation_has_no_error(tmp_path: Path) -> None:
    path = a_served_trace(tmp_path)
    found = overlay(path)
    assert len(found.measured) == len(found.simulated) == 40
    for errors in found.percentile_errors().values():
        assert np.abs(errors).max() < 1e-6
    measured, simulated = found.in_flight(np.linspace(0, 4, 30))
    assert measured.tolist() == simulated.tolist()
    assert measured.max() > 1
    (table,) = validate([path], processes=1)
    assert max(abs(each.error) for each in table.scored) < 1e-6
    assert "request by request" in validation_page([table], [found])


def test_a_run_lies_on_a_measured_table_of_its_own_requests(tmp_path: Path) -> None:
    path = a_served_trace(tmp_path)
    results = Served(Engine("llama-3.1-8b", "h100-sxm"), A_REPLAY).run()
    for errors in beside(results, path).percentile_errors().values():
        assert np.abs(errors).max() < 1e-6
    page = write_report(results, tmp_path / "report.html", path).read_text()
    assert all(f"figure-{name}" in page for name, _, _ in OVERLAYS)


def test_a_run_of_other_requests_is_compared_as_a_distribution(tmp_path: Path) -> None:
    path = a_served_trace(tmp_path)
    replay = Replay((0, 10**9), (600, 600), (30, 30))
    found = beside(Served(Engine("llama-3.1-8b", "h100-sxm"), replay).run(), path)
    assert (len(found.measured), len(found.simulated)) == (40, 2)


def test_only_a_table_of_requests_can_be_laid_over(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="no table of requests"):
        overlay(a_file(tmp_path / "steps.csv", [STEP]))
