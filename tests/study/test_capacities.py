"""Capacities that are known: from queueing theory, from a batch's arithmetic, and from a measured server."""

import csv
from pathlib import Path
from typing import Any

import pytest

from llmsim.cost import AnalyticCost
from llmsim.errors import ScenarioError
from llmsim.study.capacities import Capacity, capacity
from llmsim.workload import Client, ClientsWorkload
from llmsim.workload.lengths import Fixed
from tests.factories import a_scenario
from tests.study.factories import SERVICE_S, a_closed_loop, an_md1, md1_wait_s


def test_of_a_queue_with_a_limit_on_its_wait() -> None:
    load = 0.8
    limit_s = md1_wait_s(load) + SERVICE_S
    found = capacity(an_md1(requests=4000, slo={"ttft_mean_s": limit_s}))
    assert found.value == pytest.approx(load / SERVICE_S, rel=0.02)
    assert found.interval.low <= load / SERVICE_S <= found.interval.high
    assert found.fails_first.startswith("At ")
    assert "ttft_mean_s" in found.fails_first
    assert _share_of_a_sweep(found) <= 0.15
    waits = found.curve.groupby("load")["ttft_s.mean"].mean()
    assert found.curve["load"].is_monotonic_increasing
    assert waits.iloc[-1] > 2 * waits.iloc[0]


def _share_of_a_sweep(found: Capacity) -> float:
    """Requests simulated, as a share of those of 20 loads with as many and as long runs each.

    Such a sweep knows the capacity as well: between the two loads around it, each seed's figure crosses the limit
    somewhere, and the spread of the crossings is that of the same seeds here.
    """
    return found.requests / (20 * found.replications * found.run_requests)


def test_with_a_limit_on_a_tail_it_takes_no_longer() -> None:
    found = capacity(an_md1(requests=800, slo={"ttft_p99_s": 0.6}))
    assert 5 < found.interval.low <= found.value <= found.interval.high < 8
    assert _share_of_a_sweep(found) <= 0.15


def test_without_an_slo_it_is_what_the_server_serves() -> None:
    found = capacity(an_md1(requests=1000))
    assert found.value == pytest.approx(1 / SERVICE_S, rel=0.02)
    assert "slower than they come" in found.fails_first


def test_of_a_closed_loop_is_a_number_of_users() -> None:
    """TPOT = 10 ms + 0.1 ms a user."""
    found = capacity(a_closed_loop(slo={"tpot_mean_s": 0.0201}))
    assert found.load == "users"
    assert found.value == pytest.approx(101, rel=0.02)
    assert _share_of_a_sweep(found) <= 0.15


def test_an_slo_out_of_reach_has_no_capacity() -> None:
    found = capacity(an_md1(requests=300, slo={"ttft_mean_s": SERVICE_S / 2}))
    assert found.value == 0
    assert "ttft_mean_s" in found.fails_first


def test_a_fixed_list_of_requests_has_no_load() -> None:
    with pytest.raises(ScenarioError, match="load cannot be changed"):
        capacity(a_scenario())


SETTINGS: dict[str, dict[str, Any]] = {
    "vllm": {"max_num_seqs": 128, "enable_prefix_caching": False, "enable_chunked_prefill": False},
    "vllm+batch_size": {"max_num_seqs": 192, "enable_prefix_caching": False, "enable_chunked_prefill": False},
    "vllm+chunking_and_prefix_caching": {"max_num_seqs": 128, "shared_prefix_tokens": 192},
    "vllm+quantization": {"max_num_seqs": 128, "shared_prefix_tokens": 192},
}
"""Settings of the measured server as far as they are known; its prompts are taken to be cached but for a block."""


@pytest.mark.parametrize("setting", SETTINGS)
def test_of_a_measured_server_is_within_10_percent(setting: str, shared_data: Path) -> None:
    """vLLM 0.11, whose sampler sorts the vocabulary, scheduling while the accelerator waits."""
    with (shared_data / "load_curve_llama31_8b_h100.csv").open() as file:
        plateau = max(float(row["done"]) for row in csv.DictReader(file) if row["cfg"] == setting)
    given = {"async_scheduling": False, "engine_version": "0.11", "sampling": "top_p", **SETTINGS[setting]}
    shared = given.pop("shared_prefix_tokens", 0)
    client = Client(
        name="load",
        rate_per_s=5.0,
        shared_prefix_tokens=shared,
        prompt_tokens=Fixed(tokens=204 - shared),
        output_tokens=Fixed(tokens=62),
    )
    workload = ClientsWorkload(clients=(client,), requests=1000)
    found = capacity(a_scenario(workload=workload, cost=AnalyticCost(), max_model_len=2048, **given), replications=2)
    assert found.value == pytest.approx(plateau, rel=0.1)
