"""A load generator that holds requests back turns an open loop into a closed one, unseen by whoever reads its TTFT.

Observed with inference-perf on Llama-3.1-8B and one H100: 44 workers of 10 requests each, prompts of 200 and outputs
of 62 tokens, max_num_seqs 128; offered 123, 153 or 183 requests/s, TTFT stayed at 2.9 s and X * E2E at 389 to 432.
"""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from llmsim import load_scenario, simulate
from llmsim.errors import ScenarioError
from llmsim.workload.loops import capped
from tests.workload.factories import a_client, a_table

SCENARIO = """
name = "load generator"
model = "llama-3.1-8b"
[[pools]]
name = "one"
accelerator = "h100-sxm"
engine = {{ scheduler = {{ kind = "vllm", max_num_seqs = 128 }}, enable_prefix_caching = false }}
[workload]
kind = "clients"
requests = {requests}
[[workload.clients]]
name = "load"
rate_per_s = {rate}
prompt_tokens = {{ kind = "fixed", tokens = 200 }}
output_tokens = {{ kind = "fixed", tokens = 62 }}
{cap}
"""


def run(tmp_path: Path, rate: float, cap: str, requests: int = 8000) -> pd.DataFrame:
    """The requests of a run at an offered rate."""
    path = tmp_path / "scenario.toml"
    path.write_text(SCENARIO.format(rate=rate, cap=cap, requests=requests))
    return simulate(load_scenario(path)).requests


def ttft_s(requests: pd.DataFrame, first: float, last: float) -> float:
    """Mean TTFT of the requests that are sent in a part of all."""
    part = requests.sort_values("arrival_s").iloc[int(first * len(requests)) : int(last * len(requests))]
    return float((part["first_token_s"] - part["arrival_s"]).mean())


def in_flight(requests: pd.DataFrame) -> int:
    """Most requests sent and not yet ended."""
    moments = np.concatenate((requests["arrival_s"], requests["finish_s"]))
    changes = np.repeat([1, -1], len(requests))
    return int(np.cumsum(changes[np.lexsort((changes, moments))]).max())


@pytest.mark.parametrize("rate", [300.0, 600.0])
def test_with_a_limit_the_latency_of_an_overloaded_server_levels_off(tmp_path: Path, rate: float) -> None:
    held, free = run(tmp_path, rate, "max_concurrency = 440"), run(tmp_path, rate, "")
    assert in_flight(held) <= 440
    assert ttft_s(held, 0.75, 1.0) == pytest.approx(ttft_s(held, 0.5, 0.75), rel=0.1)
    assert ttft_s(free, 0.75, 1.0) > 1.25 * ttft_s(free, 0.5, 0.75)
    middle = held[
        (held["finish_s"] > held["finish_s"].quantile(0.3)) & (held["finish_s"] < held["finish_s"].quantile(0.7))
    ]
    throughput = len(middle) / np.ptp(middle["finish_s"])
    e2e_s = (middle["finish_s"] - middle["arrival_s"]).mean()
    # Little's law: what is in flight is the limit.
    assert throughput * e2e_s == pytest.approx(440, rel=0.05)


def test_below_saturation_a_limit_changes_nothing(tmp_path: Path) -> None:
    held, free = (run(tmp_path, 60.0, cap, requests=1000) for cap in ("max_concurrency = 440", ""))
    pd.testing.assert_frame_equal(held, free)


def test_requests_that_wait_already_have_no_limit() -> None:
    with pytest.raises(ScenarioError, match="already wait for others"):
        capped(a_table(a_client(users=2, requests_per_user=3), requests=None), 5)
