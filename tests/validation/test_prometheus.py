"""Server metrics become statistics and a workload like what was counted."""

from pathlib import Path

import numpy as np
import pytest

from llmsim.errors import ScenarioError
from llmsim.validation.readers.prometheus import ServerMetrics, parse_metrics, read_metrics

EDGES = (1.0, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000)


def histogram(name: str, values: np.ndarray, engine: int = 0) -> str:
    labels = f'engine="{engine}",model_name="a \\"b\\""'
    lines = [f'vllm:{name}_bucket{{{labels},le="{edge}"}} {np.sum(values <= edge)}' for edge in (*EDGES, float("inf"))]
    lines += [f"vllm:{name}_sum{{{labels}}} {values.sum()}", f"vllm:{name}_count{{{labels}}} {len(values)}"]
    return "\n".join(lines).replace('"inf"', '"+Inf"') + "\n"


def text(prompts: np.ndarray, outputs: np.ndarray, engine: int = 0) -> str:
    return (
        (
            "# HELP vllm:num_requests_running running\n# TYPE vllm:num_requests_running gauge\n"
            f'vllm:num_requests_running{{engine="{engine}"}} 12.0\n'
            f'vllm:prompt_tokens_total{{engine="{engine}"}} {prompts.sum()}\n'
            f'vllm:generation_tokens_total{{engine="{engine}"}} {outputs.sum()} 1730000000000\n'
            'vllm:cache_config_info{block_size="16",num_gpu_blocks="15709"} 1.0\npython_info{x="le"} 1.0\n'
        )
        + histogram("request_prompt_tokens", prompts, engine)
        + histogram("request_generation_tokens", outputs, engine)
    )


@pytest.fixture(scope="module")
def lengths() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    draw = [np.maximum(np.rint(rng.lognormal(np.log(median), 0.9, 40_000)), 1) for median in (600, 90)]
    return draw[0], draw[1]


def test_a_workload_like_what_was_counted(lengths: tuple[np.ndarray, np.ndarray]) -> None:
    metrics = parse_metrics(text(*lengths), "metrics")
    table = metrics.workload(rate_per_s=7.0, requests=20_000).generate(0)
    assert 20_000 / (table.arrival_ns[-1] / 1e9) == pytest.approx(7, rel=0.03)
    for drawn, real in zip((table.prompt_tokens, table.output_tokens), lengths, strict=True):
        for edge in EDGES:
            share = np.mean(real <= edge)
            error = 5 * np.sqrt(share * (1 - share) / 20_000) + 0.5 * np.mean(np.abs(real - edge) < 1) + 1e-3
            assert np.mean(drawn <= edge) == pytest.approx(share, abs=error)
        assert drawn.mean() == pytest.approx(real.mean(), rel=0.03)


def test_statistics_are_as_prometheus_interpolates_them(lengths: tuple[np.ndarray, np.ndarray]) -> None:
    run = parse_metrics(text(*lengths), "metrics").measured(duration_s=100.0)
    assert run.statistics["prompt_tokens"]["mean"] == pytest.approx(lengths[0].mean())
    below, upto = np.mean(lengths[0] <= 500), np.mean(lengths[0] <= 1000)
    assert run.statistics["prompt_tokens"]["p50"] == pytest.approx(500 + 500 * (0.5 - below) / (upto - below))
    assert run.totals["requests_per_s"] == 400
    assert run.totals["prompt_tokens"] == lengths[0].sum()


def test_two_readings_tell_what_happened_in_between(lengths: tuple[np.ndarray, np.ndarray]) -> None:
    prompts, outputs = lengths
    before = parse_metrics(text(prompts[:10_000], outputs[:10_000]), "before")
    after = parse_metrics(text(prompts, outputs), "after")
    between = after.since(before)
    own = parse_metrics(text(prompts[10_000:], outputs[10_000:]), "own")
    assert between.histograms["request_prompt_tokens"].counts == own.histograms["request_prompt_tokens"].counts
    assert between.values["prompt_tokens_total"] == own.values["prompt_tokens_total"]
    assert between.values["num_requests_running"] == 12
    with pytest.raises(ScenarioError, match="is it the later one"):
        before.since(after)


def test_engines_are_added_up(lengths: tuple[np.ndarray, np.ndarray]) -> None:
    both = parse_metrics(text(*lengths) + text(*lengths, engine=1), "metrics")
    one = parse_metrics(text(*lengths), "metrics")
    counts = [metrics.histograms["request_prompt_tokens"].counts for metrics in (one, both)]
    np.testing.assert_array_equal(2 * np.array(counts[0]), counts[1])
    assert both.values["num_requests_running"] == 24
    assert both.info["num_gpu_blocks"] == "15709"


def test_older_names_of_times_are_known() -> None:
    old = "\n".join(f'vllm:time_per_output_token_seconds_bucket{{le="{e}"}} {c}' for e, c in (("0.1", 4), ("+Inf", 5)))
    run = parse_metrics(old + "\nvllm:time_per_output_token_seconds_sum 0.45\n", "metrics").measured()
    assert run.statistics["itl_s"]["mean"] == pytest.approx(0.09)
    assert run.statistics["itl_s"]["p99"] == 0.1


def test_values_beyond_the_last_edge_have_its_length() -> None:
    metrics = parse_metrics(text(np.array([30_000.0, 30_000, 15]), np.array([7.0, 7, 7])), "metrics")
    drawn = metrics.workload(1.0, 300).generate(0)
    assert np.mean(drawn.prompt_tokens == 20_000) == pytest.approx(2 / 3, abs=0.15)
    assert np.all((drawn.prompt_tokens == 20_000) | (drawn.prompt_tokens <= 20))
    assert np.all((drawn.output_tokens >= 5) & (drawn.output_tokens <= 10))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "metrics: has no metrics of vLLM"),
        ("sglang:x 5\n", "metrics: has no metrics of vLLM"),
        ("vllm:x 5\nvllm:y five\n", "metrics line 2: 'vllm:y five' is not a sample"),
        ("{oops\n", "metrics line 1"),
    ],
)
def test_faults_are_named(text: str, message: str) -> None:
    with pytest.raises(ScenarioError, match=message):
        parse_metrics(text, "metrics")


def test_a_workload_needs_both_histograms(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="no histogram request_prompt_tokens, request_generation_tokens"):
        ServerMetrics({}, {}, {}).workload(1.0, 5)
    with pytest.raises(ScenarioError, match=r"absent.txt: cannot be read"):
        read_metrics(tmp_path / "absent.txt")
