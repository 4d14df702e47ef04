"""Sweeps: every combination once, the same whichever way they are run, and a kill loses nothing."""

import multiprocessing
import time
from pathlib import Path

import pytest

from llmsim.cli import main
from llmsim.errors import ScenarioError
from llmsim.study.running import Progress
from llmsim.study.sweeping import parse_grid, sweep
from tests.study.factories import an_md1

GRID = {"workload.clients.0.rate_per_s": [2.0, 5.0], "pools.engine.scheduler.max_num_seqs": [1, 4]}

SCENARIO = """
name = "small"
model = "llama-3.1-8b"
[[pools]]
name = "chat"
accelerator = "h100-sxm"
[workload]
kind = "preset"
rate_per_s = 5.0
requests = 200
"""


def test_each_combination_is_run_under_the_same_seeds() -> None:
    found = sweep(an_md1(requests=100, seed=7), GRID, replications=2)
    frame = found.frame
    assert len(frame) == 8
    assert frame.groupby(list(GRID))["seed"].apply(list).tolist() == [[7, 8]] * 4
    one_slot = frame[frame["pools.engine.scheduler.max_num_seqs"] == 1]
    waits = one_slot.groupby("workload.clients.0.rate_per_s")["queue_s.mean"].mean()
    assert waits[2.0] < waits[5.0]
    assert [interval.value for _, interval in found.intervals("ttft_s.p99")] == pytest.approx(
        frame.groupby(list(GRID), sort=False)["ttft_s.p99"].mean().tolist()
    )


def test_impossible_combinations_are_rows_with_their_fault() -> None:
    found = sweep(an_md1(requests=50), {"pools.max_model_len": [1024, 10**9]})
    assert found.frame["verdict"].tolist()[1] == "refused"
    assert "max_model_len" in found.frame["fault"][1]
    with pytest.raises(ScenarioError, match="max_model_len"):
        sweep(an_md1(requests=50), {"pools.max_model_len": [10**9]})
    with pytest.raises(ScenarioError, match="no such figure"):
        found.intervals("ttft_p99")


def test_processes_and_finished_cells_change_nothing(tmp_path: Path) -> None:
    scenario = an_md1(requests=60)
    here = sweep(scenario, GRID).frame
    told: list[Progress] = []
    there = sweep(scenario, GRID, jobs=2, folder=tmp_path, progress=told.append).frame
    assert there.to_csv() == here.to_csv()
    assert [each.done for each in told] == [1, 2, 3, 4]
    files = sorted((tmp_path / "cells").iterdir())
    stamps = [file.stat().st_mtime_ns for file in files]
    assert sweep(scenario, GRID, folder=tmp_path).frame.to_csv() == here.to_csv()
    assert [file.stat().st_mtime_ns for file in files] == stamps
    assert len(list((tmp_path / "cells").iterdir())) == 4


@pytest.mark.parametrize("backend", ["dask", "ray"])
def test_clusters_give_the_same_bytes(backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Through the command, which starts the cluster and ends it."""
    pytest.importorskip({"dask": "distributed", "ray": "ray"}[backend])
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")  # or Ray writes a token into the home of whoever runs the tests
    file = tmp_path / "small.toml"
    file.write_text(SCENARIO.replace("200", "20"))
    tables = []
    for name, jobs in (("loky", "1"), (backend, "2")):
        grid = ["--grid", "workload.rate_per_s=2,4", "--jobs", jobs, "--out", str(tmp_path / name)]
        assert main(["sweep", str(file), *grid, "--backend", name]) == 0
        tables.append((tmp_path / name / "sweep.csv").read_bytes())
    assert tables[0] == tables[1]


def test_a_killed_sweep_goes_on_where_it_was(tmp_path: Path) -> None:
    """Killed three times at moments that depend on the machine: the same table."""
    file = tmp_path / "small.toml"
    file.write_text(SCENARIO)
    command = ["sweep", str(file), "--grid", "workload.rate_per_s=2,4,8", "--replications", "3", "--jobs", "1", "--out"]
    killed = tmp_path / "killed"
    counts = [_run_and_kill([*command, str(killed)], killed / "cells") for _ in range(3)]
    assert counts == sorted(counts)
    assert main([*command, str(killed)]) == main([*command, str(tmp_path / "whole")]) == 0
    assert (killed / "sweep.csv").read_bytes() == (tmp_path / "whole" / "sweep.csv").read_bytes()
    names = [sorted(each.name for each in folder.glob("cells/*.json")) for folder in (killed, tmp_path / "whole")]
    assert names[0] == names[1]
    assert len(names[0]) == 9


def _run_and_kill(command: list[str], cells: Path) -> int:
    """Start, wait until there are more cells than before, kill at once; returns how many there are then."""
    before = len(list(cells.glob("*.json")))
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["llmsim.study.sweeping", "llmsim.report.study_figures"])
    process = context.Process(target=main, args=(command,))
    process.start()
    while process.is_alive() and len(list(cells.glob("*.json"))) <= before:
        time.sleep(0.01)
    process.kill()
    process.join()
    return len(list(cells.glob("*.json")))


def test_a_grid_is_read_as_values() -> None:
    assert parse_grid(["a.b=1,2.5,h100-sxm", "c=[[1, 2], [3]]"]) == {"a.b": [1, 2.5, "h100-sxm"], "c": [[1, 2], [3]]}
    with pytest.raises(ScenarioError, match="key=a,b,c"):
        parse_grid(["a.b"])
