"""What people saw on real servers under closed loops and bursts, and reported as riddles, shows in simulated runs."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from llmsim import load_scenario, simulate

SCENARIO = """
name = "observation"
model = "{model}"
[[pools]]
name = "one"
accelerator = "{accelerator}"
tensor_parallel_size = {tp}
engine = {{ scheduler = {{ kind = "vllm", max_num_seqs = {seqs} }}, enable_prefix_caching = {caching} }}
[workload]
kind = "clients"
[[workload.clients]]
name = "users"
users = {users}
requests_per_user = {each}
shared_prefix_tokens = {prefix}
prompt_tokens = {{ kind = "fixed", tokens = {prompt} }}
output_tokens = {{ kind = "uniform", low = {low}, high = {high} }}
"""


def run(tmp_path: Path, **values: Any) -> pd.DataFrame:
    """The requests of a closed loop; ``output`` is a number of tokens or the least and the most."""
    output = values.pop("output")
    low, high = output if isinstance(output, tuple) else (output, output)
    defaults = {"model": "llama-3.1-8b", "accelerator": "h100-sxm", "tp": 1, "seqs": 256, "caching": "false", "each": 1}
    path = tmp_path / "scenario.toml"
    path.write_text(SCENARIO.format(**{**defaults, "prefix": 0, "low": low, "high": high, **values}))
    requests = simulate(load_scenario(path)).requests
    ttft_s = requests["first_token_s"] - requests["arrival_s"]
    tpot_s = (requests["finish_s"] - requests["first_token_s"]) / (requests["output_tokens"] - 1).clip(lower=1)
    return requests.assign(ttft_s=ttft_s, tpot_s=tpot_s)


def throughput_per_s(requests: pd.DataFrame) -> float:
    """Requests finished a second in the middle of a run."""
    low, high = requests["finish_s"].quantile([0.3, 0.7])
    return float(requests["finish_s"].between(low, high).sum() / (high - low))


def test_ttft_falls_as_outputs_grow_in_a_closed_loop(tmp_path: Path) -> None:
    """70B on 8 GPUs, 32 users, prompts of 3,100: with one output token all prefills come together."""
    ttft_s = [
        run(tmp_path, model="llama-3.1-70b", tp=8, users=32, each=12, prompt=3_100, output=output)
        .query("arrival_s > 0")["ttft_s"]
        .mean()
        for output in (1, (8, 24), (32, 96), (128, 384))
    ]
    assert np.all(np.diff(ttft_s) < 0)
    assert ttft_s[0] > 3 * ttft_s[-1]


def test_short_outputs_of_a_prefill_bound_server_are_slow_by_others_prefills(tmp_path: Path) -> None:
    """777 tokens in, 7.5 out, 10 users: TPOT is interference, and total throughput stays when users are added."""
    alone, ten, twenty, forty = (
        run(tmp_path, accelerator="l4", users=users, each=400 // users, prompt=777, output=(4, 11))
        for users in (1, 10, 20, 40)
    )
    assert ten["tpot_s"].mean() > 2 * alone["tpot_s"].mean()
    assert throughput_per_s(forty) == pytest.approx(throughput_per_s(twenty), rel=0.15)


def test_a_thousand_requests_at_once_wait_as_long_as_the_last_one_takes(tmp_path: Path) -> None:
    requests = run(tmp_path, users=1_000, seqs=64, prompt=500, output=200)
    drain_s = 1_000 / throughput_per_s(requests)
    assert requests["ttft_s"].max() == pytest.approx(drain_s, rel=0.15)


def test_with_one_sequence_at_a_time_ttft_grows_along_a_line(tmp_path: Path) -> None:
    requests = run(tmp_path, users=50, seqs=1, prompt=300, output=50).sort_values("first_token_s")
    steps_s = np.diff(requests["ttft_s"])
    assert steps_s.min() > 0
    np.testing.assert_allclose(steps_s, steps_s[0], rtol=1e-6)
    served_s = (requests["finish_s"] - requests["first_scheduled_s"]).median()
    assert steps_s[0] == pytest.approx(served_s, rel=0.01)


def test_a_shared_prefix_is_worth_half_as_much_throughput_again(tmp_path: Path) -> None:
    """128 of 203 prompt tokens shared, 62 out, 440 in flight: 113.7 requests/s without, 173 with the cache."""
    load = {"users": 440, "each": 15, "seqs": 192, "prefix": 128, "prompt": 75, "output": 62}
    without, with_cache = (run(tmp_path, caching=caching, **load) for caching in ("false", "true"))
    assert with_cache["cached_tokens"].median() == 128
    assert 1.2 < throughput_per_s(with_cache) / throughput_per_s(without) < 1.8
    assert with_cache["tpot_s"].mean() < without["tpot_s"].mean()
