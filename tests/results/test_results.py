"""What a notebook sees of a run."""

from pathlib import Path

import pandas as pd
import pytest

from llmsim.results.record import ITERATION_COLUMNS, REQUEST_COLUMNS
from llmsim.results.results import Results, load_results
from tests.results.factories import a_record, some_facts


def test_tables_have_the_columns_of_the_contract_in_order() -> None:
    results = Results(a_record())
    assert list(results.requests.columns) == list(REQUEST_COLUMNS)
    assert list(results.iterations.columns) == list(ITERATION_COLUMNS)
    assert len(results.requests) == 3


def test_tables_and_summary_are_made_once() -> None:
    results = Results(a_record())
    assert results.requests is results.requests
    assert results.iterations is results.iterations
    assert results.summary() is results.summary()


def test_table_agrees_with_the_summary() -> None:
    """The definitions, once more, by pandas."""
    results = Results(a_record())
    finished = results.requests.query("outcome == 'finished'")
    ttft = finished["first_token_s"] - finished["arrival_s"]
    assert results.summary()["ttft_s"]["p99"] == pytest.approx(ttft.quantile(0.99))
    assert results.itl["count"].sum() == (finished["output_tokens"] - 1).sum()


def test_saved_results_are_loaded(tmp_path: Path) -> None:
    results = Results(a_record())
    results.save(tmp_path / "run")
    loaded = load_results(str(tmp_path / "run"))
    assert loaded.summary() == results.summary()
    pd.testing.assert_frame_equal(loaded.requests, results.requests)
    pd.testing.assert_frame_equal(loaded.iterations, results.iterations)
    pd.testing.assert_frame_equal(loaded.itl, results.itl)


def test_record_of_level_summary_keeps_its_figures(tmp_path: Path) -> None:
    """Level ``summary`` drops the requests, so the figures come with the record and survive a folder."""
    summary = Results(a_record()).summary()
    thin = Results(a_record(requests=[], iterations=[], facts=some_facts(record="summary")), summary)
    thin.save(tmp_path / "run")
    assert load_results(tmp_path / "run").summary() == summary


@pytest.mark.parametrize(("limit_s", "word"), [(1.0, "SLO met"), (0.01, "SLO missed")])
def test_one_line_tells_what_happened(limit_s: float, word: str) -> None:
    results = Results(a_record(facts=some_facts(slo={"ttft_p99_s": limit_s})))
    assert "\n" not in repr(results)
    assert "2 of 3 requests finished" in repr(results)
    assert word in repr(results)
    assert results.slo_met is (limit_s == 1.0)


def test_line_of_a_run_without_requests() -> None:
    assert "0 of 0 requests finished" in repr(Results(a_record(requests=[])))
