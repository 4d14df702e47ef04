"""A command becomes a scenario and a scenario a command; nothing is ignored in silence."""

import tomllib

import pytest

from llmsim.errors import ScenarioError
from llmsim.scenario import Scenario
from llmsim.study.vllm_serve import commands_of_scenario, scenario_of_command

COMMAND = """VLLM_USE_V1=1 vllm serve meta-llama/Llama-3.1-70B-Instruct -tp 4 --quantization fp8 --max-model-len 32k \\
  --max_num_seqs=128 --no-enable-prefix-caching --gpu-memory-utilization 0.9 --host 0.0.0.0 --port 80"""


def scenario_of(command: str) -> Scenario:
    return Scenario.parse(tomllib.loads(scenario_of_command(command).text))


def test_flags_are_keys() -> None:
    (pool,) = scenario_of(COMMAND).pools
    assert (pool.model.name, pool.tensor_parallel_size, pool.quantization) == ("llama-3.1-70b", 4, "fp8")
    assert pool.max_model_len == 32_000
    assert pool.engine.scheduler.max_num_seqs == 128
    assert pool.engine.gpu_memory_utilization == 0.9
    assert not pool.engine.enable_prefix_caching
    assert scenario_of_command(COMMAND).unknown == ()


def test_unknown_flags_are_listed_with_their_values() -> None:
    found = scenario_of_command(
        "vllm serve llama-3.1-8b --speculative-config '{\"num_speculative_tokens\": 3}' --enforce-eager"
    )
    assert found.unknown == ('--speculative-config {"num_speculative_tokens": 3}', "--enforce-eager")
    assert all(f"# Not simulated: {flag}" in found.text for flag in found.unknown)


@pytest.mark.parametrize(
    "flags",
    [
        "",
        "--tensor-parallel-size 2 --max-num-batched-tokens 4096 --scheduling-policy priority",
        "--kv-cache-dtype fp8 --dtype float16 --block-size 32 --no-async-scheduling --num-gpu-blocks-override 5000",
        "--quantization awq --enable-chunked-prefill --max-model-len auto",
    ],
)
def test_there_and_back_is_the_same(flags: str) -> None:
    first = scenario_of(f"vllm serve llama-3.1-8b {flags}")
    command = commands_of_scenario(first)[-1]
    assert command.startswith("vllm serve meta-llama/Llama-3.1-8B")
    assert scenario_of(command).pools == first.pools


@pytest.mark.parametrize(
    ("command", "fault"),
    [
        ("vllm chat", "vllm serve MODEL"),
        ("vllm serve --port 80", "names no model"),
        ("vllm serve no/such-model", "no/such-model"),
        ("vllm serve llama-3.1-8b --max-num-seqs many", "'many' is no number"),
        ("vllm serve llama-3.1-8b --max-num-seqs", "needs a value"),
        ("vllm serve llama-3.1-8b --dtype float12", "float12"),
        ("vllm serve llama-3.1-70b", "does not fit"),
        ("vllm serve 'x", "cannot be read"),
    ],
)
def test_a_wrong_command_is_refused(command: str, fault: str) -> None:
    with pytest.raises(ScenarioError, match=fault):
        scenario_of_command(command)
