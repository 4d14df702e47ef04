"""A measured trace beside its simulation, row by row."""

from pathlib import Path

import numpy as np
import pytest

from llmsim.errors import ScenarioError
from llmsim.report.validation_page import validation_page
from llmsim.validation.compare import validate
from llmsim.validation.overlay import overlay
from llmsim.validation.served import Engine, Replay, Served
from tests.validation.factories import STEP, a_file


def a_served_trace(folder: Path) -> Path:
    """A file as a server would log it that behaves as the simulation does."""
    arrival_s = np.arange(40) * 0.05
    replay = Replay(tuple((arrival_s * 1e9).astype(int).tolist()), (600, 90) * 20, (4, 30, 70, 9) * 10)
    requests = Served(Engine("llama-3.1-8b", "h100-sxm"), replay).run().requests
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


def test_only_a_table_of_requests_can_be_laid_over(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="no table of requests"):
        overlay(a_file(tmp_path / "steps.csv", [STEP]))
