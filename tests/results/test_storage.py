"""Result folders: what is read is what was written, the same bytes twice, and clear refusals."""

import json
from pathlib import Path

import numpy as np
import pytest

from llmsim.errors import ScenarioError
from llmsim.results.metrics import summarise
from llmsim.results.record import Columns, RunRecord
from llmsim.results.storage import FILES, read_result, write_result
from tests.results.factories import a_preemption, a_record, a_request, some_facts, some_totals


def save(folder: Path, record: RunRecord | None = None) -> Path:
    record = record or a_record(preemptions=[a_preemption(1)])
    write_result(folder, record, summarise(record))
    return folder


def assert_same(found: Columns, expected: Columns) -> None:
    assert list(found) == list(expected)
    for name, column in expected.items():
        assert found[name].dtype == column.dtype, name
        np.testing.assert_array_equal(found[name], column, err_msg=name)


@pytest.mark.parametrize(
    "record",
    [
        a_record(preemptions=[a_preemption(1, caught_up_s=float("nan"))]),
        a_record(
            requests=[],
            iterations=[],
            totals=some_totals(itl_values_s=np.empty(0), itl_counts=np.empty(0, int)),
        ),
        a_record(
            requests=[a_request(client="größer, kleiner")],
            facts=some_facts(scenario='"süß"\n', slo={"e2e_p99_s": 0.1}),
        ),
    ],
    ids=["story", "empty", "other text"],
)
def test_what_is_read_is_what_was_written(tmp_path: Path, record: RunRecord) -> None:
    found, summary = read_result(save(tmp_path / "run", record))
    assert found.facts == record.facts
    assert_same(found.requests, record.requests)
    assert_same(found.iterations, record.iterations)
    assert_same(found.preemptions, record.preemptions)
    assert summary == summarise(record) == summarise(found)


def test_equal_runs_are_equal_bytes(tmp_path: Path) -> None:
    first, second = save(tmp_path / "a"), save(tmp_path / "b")
    assert sorted(path.name for path in first.iterdir()) == sorted(FILES)
    for name in FILES:
        assert (first / name).read_bytes() == (second / name).read_bytes(), name


def test_scenario_is_kept_as_it_is_written(tmp_path: Path) -> None:
    folder = save(tmp_path / "run")
    assert (folder / "scenario.json").read_text() == some_facts().scenario_text


def test_equal_texts_are_one_string(tmp_path: Path) -> None:
    """A million rows hold a handful of texts."""
    record = a_record(requests=[a_request(i) for i in range(100)])
    found, _ = read_result(save(tmp_path / "run", record))
    assert len({id(text) for text in found.requests["outcome"]}) == 1


def test_parquet_is_readable_without_llmsim(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.read_parquet(save(tmp_path / "run") / "requests.parquet")
    assert list(frame["outcome"]) == ["finished", "finished", "rejected"]


def test_earlier_result_is_overwritten_and_other_files_stay(tmp_path: Path) -> None:
    folder = save(tmp_path / "run")
    (folder / "report.html").write_text("<p>")
    save(folder, a_record(facts=some_facts(seed=8)))
    assert read_result(folder)[0].facts.seed == 8
    assert (folder / "report.html").exists()


def test_folder_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(ScenarioError, match="not a result"):
        save(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_file_in_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("")
    with pytest.raises(ScenarioError, match="run: is a file"):
        save(tmp_path / "run")


def test_folder_without_a_result_is_named(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="nowhere: is not a result folder"):
        read_result(tmp_path / "nowhere")


@pytest.mark.parametrize("name", FILES)
def test_missing_file_is_named(tmp_path: Path, name: str) -> None:
    folder = save(tmp_path / "run")
    (folder / name).unlink()
    with pytest.raises(ScenarioError, match=f"not a whole result: {name} not found"):
        read_result(folder)


def test_unknown_version_is_refused(tmp_path: Path) -> None:
    path = save(tmp_path / "run") / "facts.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"schema_version": 99}))
    with pytest.raises(ScenarioError, match="schema_version 99 is not known; allowed is 1"):
        read_result(tmp_path / "run")


def test_edited_scenario_is_refused(tmp_path: Path) -> None:
    path = save(tmp_path / "run") / "scenario.json"
    path.write_text(path.read_text().replace("7", "8"))
    with pytest.raises(ScenarioError, match=r"scenario\.json: edited after the run"):
        read_result(tmp_path / "run")


@pytest.mark.parametrize("name", FILES)
def test_damaged_file_is_named(tmp_path: Path, name: str) -> None:
    path = save(tmp_path / "run") / name
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(ScenarioError, match=name):
        read_result(tmp_path / "run")
