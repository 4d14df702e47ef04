"""Every decision of vLLM's real scheduler, step by step and to the nanosecond, through the engine that simulates."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from llmsim.engine.decisions import Decisions
from llmsim.results.results import Results
from llmsim.simulation import simulate
from tests.conformance.cases import as_scenario, case_paths, ids_by_row, read_case

STEP_FIELDS = (
    "step",
    "t",
    "dur",
    "arrived",
    "sched",
    "total",
    "ctx",
    "new",
    "resumed",
    "preempted",
    "hits",
    "running",
    "waiting",
    "free_blocks",
    "emitted",
    "finished",
    "free_blocks_end",
)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    folder: Path = metafunc.config.getoption("--decisions")
    paths = case_paths(folder)
    assert paths, f"no recorded decisions (*.json, *.json.gz) in {folder}"
    metafunc.parametrize("path", paths, ids=[path.name.partition(".")[0] for path in paths])


def test_every_step_is_that_of_the_real_scheduler(path: Path) -> None:
    case = read_case(path)
    logs: list[Decisions] = []
    results = simulate(as_scenario(case, leap=False), decisions=logs)
    ids = ids_by_row(case)
    steps = [_named(step, ids) for step in logs[0].steps]
    fields = list(STEP_FIELDS)
    if case["config"]["arrivals"] == "step":
        fields.remove("step")  # there the number jumps over idle gaps, to the next arrival's
    if case["config"]["enable_prefix_caching"]:
        fields.append("cached_hashes")
    if case["config"]["async_scheduling"]:
        fields += ["gpu_start", "gpu_end"]
    for expected, got in zip(case.get("steps") or (), steps, strict=False):
        for field in fields:
            assert got[field] == expected[field], (
                f"case {case['name']}, step {expected['step']}, {field}: expected {expected[field]}, got {got[field]}"
            )
    if case.get("steps"):
        assert len(steps) == len(case["steps"]), f"case {case['name']}: number of steps"
    _compare_results(case, results, ids)


def test_with_the_leap_results_are_the_same(path: Path) -> None:
    case = read_case(path)
    results = simulate(as_scenario(case, leap=True))
    _compare_results(case, results, ids_by_row(case))


def _named(step: dict[str, Any], ids: list[str]) -> dict[str, Any]:
    """A step with ids instead of rows; requests that arrive between two steps are logged in the file's order."""
    named = {
        key: [ids[row] for row in value]
        for key, value in step.items()
        if key in ("arrived", "new", "resumed", "preempted", "running", "waiting", "emitted")
    }
    named["sched"] = [[ids[row], tokens] for row, tokens in step["sched"]]
    named["hits"] = {ids[row]: tokens for row, tokens in step["hits"].items()}
    named["finished"] = [[ids[row], reason] for row, reason in step["finished"]]
    return {**step, **named}


def _compare_results(case: dict[str, Any], results: Results, ids: list[str]) -> None:
    columns = results.record.requests
    for row, name in enumerate(ids):
        expected, outcome = case["results"][name], columns["outcome"][row]
        got = {
            "prompt_len": int(columns["prompt_tokens"][row]),
            "first_sched": _ns(columns["first_scheduled_s"][row]),
            "first_token": _ns(columns["first_token_s"][row]),
            "finish": _ns(columns["finish_s"][row]),
            "reason": {"finished": columns["reason"][row], "rejected": "rejected"}.get(outcome),
            "n_out": int(columns["output_tokens"][row]),
            "preemptions": int(columns["preemptions"][row]),
            "hit": int(columns["cached_tokens"][row]),
        }
        for field, value in got.items():
            if field not in expected:
                continue
            assert value == (expected[field] or (0 if field == "hit" else expected[field])), (
                f"case {case['name']}, request {name}, {field}: expected {expected[field]}, got {value}"
            )
    _compare_summary(case, results, ids)


def _compare_summary(case: dict[str, Any], results: Results, ids: list[str]) -> None:
    columns, iterations = results.record.requests, results.record.iterations
    outcomes = columns["outcome"]
    blocks = case["config"]["num_gpu_blocks"] - 1
    got = {
        "num_steps": len(iterations["end_s"]) + _stuck_steps(case),
        "end_clock": _ns(results.facts.window_end_s),
        "total_scheduled_tokens": int((iterations["prefill_tokens"] + iterations["decode_tokens"]).sum()),
        "total_preemptions": int(iterations["preempted"].sum()),
        "total_hit_tokens": int(iterations["cached_tokens"].sum()),
        "max_running": int(iterations["running"].max(initial=0)),
        "min_free_blocks": blocks - int(iterations["kv_blocks"].max(initial=0)),
        "finished": int(np.count_nonzero(outcomes == "finished")),
        "rejected": sorted(ids[row] for row in np.flatnonzero(outcomes == "rejected")),
        "stuck": sorted(ids[row] for row in np.flatnonzero(outcomes == "aborted")),
    }
    for field, value in got.items():
        expected = case["summary"][field]
        expected = sorted(expected) if isinstance(expected, list) else expected
        assert value == expected, f"case {case['name']}, summary {field}: expected {expected}, got {value}"


def _stuck_steps(case: dict[str, Any]) -> int:
    """Recorded calls of the scheduler that found nothing to do: no iteration."""
    return sum(not (step["sched"] or step["preempted"]) for step in case.get("steps") or ())


def _ns(seconds: float) -> int | None:
    return None if np.isnan(seconds) else round(seconds * 1e9)
