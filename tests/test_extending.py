"""A GPU of five numbers and a model of its config.json, used in a scenario without touching the package."""

import json
from pathlib import Path

import pytest

import llmsim
from llmsim.cli import main
from llmsim.engine.settings import EngineSpec
from llmsim.engine.vllm import VllmScheduler
from tests.own_policies import REQUESTS, own_scenario

GPU = """
    # 400 TFLOPS bfloat16 (800 with sparsity), 1.6 TB/s, 48 GB of which the driver reports 44 GiB, PCIe Gen5
    fp16_flop_per_s = 400e12
    hbm_bandwidth_bytes_per_s = 1.6e12
    memory_bytes = 47.2e9
    link_bandwidth_bytes_per_s = 64e9
    price_usd_per_hour = 1.10
"""
MODEL = {
    "architectures": ["Qwen3ForCausalLM"],
    "num_hidden_layers": 40,
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "intermediate_size": 12288,
    "vocab_size": 151936,
    "max_position_embeddings": 40960,
    "torch_dtype": "bfloat16",
}
SCENARIO = """
    name = "my model on my GPU"
    model = "my-model"
    [[pools]]
    name = "chat"
    accelerator = "my-gpu.toml"
    [workload]
    kind = "preset"
    name = "azure-conversation-2023"
    rate_per_s = 2.0
    requests = 100
"""


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    (tmp_path / "my-gpu.toml").write_text(GPU)
    (tmp_path / "my-model").mkdir()
    (tmp_path / "my-model" / "config.json").write_text(json.dumps(MODEL))
    (tmp_path / "mine.toml").write_text(SCENARIO)
    return tmp_path / "mine.toml"


def test_the_command_line_runs_both(scenario: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", str(scenario), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["requests"]


def test_the_run_is_of_this_gpu_and_this_model(scenario: Path) -> None:
    results = llmsim.simulate(llmsim.load_scenario(scenario))
    [pool] = results.facts.pools
    ledger = pool["ledger"]
    assert (pool["model"], pool["accelerator"]) == ("my-model", "my-gpu")
    parameters = 40 * (4096 * 6144 + 4096 * 4096 + 3 * 4096 * 12288) + 2 * 151936 * 4096
    assert ledger["total_bytes"] == 47.2e9
    assert ledger["weights_bytes"] == pytest.approx(2 * parameters, rel=1e-3)
    assert ledger["block_bytes"] == 16 * 40 * 2 * 8 * 128 * 2
    least_tpot_s = 2 * (parameters - 151936 * 4096) / 1.6e12  # the input embedding is looked up, not read
    assert least_tpot_s < results.summary()["tpot_s"]["p50"] < 3 * least_tpot_s
    assert any("my-gpu: efficiencies are not fitted but borrowed from" in note for note in results.facts.notes)


def test_a_file_that_is_wrong_is_named_with_the_key(scenario: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (scenario.parent / "my-gpu.toml").write_text(GPU.replace("400e12", "400"))
    (scenario.parent / "my-model" / "config.json").write_text(json.dumps(MODEL | {"vocab_size": None}))
    assert main(["run", str(scenario)]) == 2
    told = capsys.readouterr().err
    assert "my-gpu.toml: fp16_flop_per_s = 400" in told
    assert "config.json: vocab_size is missing" in told


def test_policies_may_be_objects_of_any_class() -> None:
    results = llmsim.simulate(own_scenario())
    assert results.figures()["requests"]["finished"] == REQUESTS
    assert set(results.requests["replica"]) == {0, 1}
    assert results.figures()["tpot_s"]["mean"] == pytest.approx(0.02)
    assert '"router": "tests.own_policies.AtRandom"' in results.facts.scenario_text


def test_a_scheduler_may_be_an_object_of_any_class() -> None:
    class OneAtATime:
        """vLLM's with one slot."""

        def __getattr__(self, name: str) -> object:
            return getattr(VllmScheduler(max_num_seqs=1), name)

    scenario = own_scenario().with_settings({"pools.engine": EngineSpec(scheduler=OneAtATime())})
    assert llmsim.simulate(scenario).figures()["running"]["max"] == 2, "one on each replica"
