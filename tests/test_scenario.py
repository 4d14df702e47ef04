"""Scenario files: what loads, what every fault says, and how single keys are replaced."""

import json
import tomllib
from dataclasses import FrozenInstanceError, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from llmsim.closed_form import decodes
from llmsim.cluster.router import LeastOutstanding, RoundRobin
from llmsim.cost import AnalyticCost, LinearCost
from llmsim.engine.orca import OrcaScheduler
from llmsim.engine.settings import EngineSpec, VllmScheduler
from llmsim.errors import ScenarioError
from llmsim.scenario import Pool, Run, Scenario, load_scenario, scenario_schema
from llmsim.workload import PresetWorkload, RequestTable

FILE = """
name = "chat on one H100"
model = "llama-3.1-8b"
seed = 0
router = { kind = "least_outstanding" }

[[pools]]
name = "chat"
accelerator = "h100-sxm"
replicas = 1
tensor_parallel_size = 1
cost = { kind = "analytic" }
[pools.engine]
scheduler = { kind = "vllm", max_num_seqs = 256, max_num_batched_tokens = 8192 }
enable_prefix_caching = true

[workload]
kind = "preset"
name = "azure-conversation-2023"
rate_per_s = 5.0
requests = 2000

[slo]
ttft_p99_s = 1.0
tpot_p99_s = 0.05

[run]
horizon_s = 600.0
warm_up_s = 30.0
record = "full"
leap = true
"""

TWO_POOLS = FILE.replace("[workload]", '[[pools]]\nname = "code"\naccelerator = "h200-sxm"\n[workload]')

TRACE = "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,374,44\n"


def a_file(folder: Path, *changes: tuple[str, str], text: str = FILE) -> Path:
    """The scenario file of the documentation, with some of its text replaced."""
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    path = folder / "scenario.toml"
    path.write_text(text)
    return path


def a_scenario(**fields: Any) -> Scenario:
    """A small scenario made in Python."""
    given = {
        "name": "small",
        "model": "llama-3.1-8b",
        "pools": [Pool(name="chat", accelerator="h100-sxm")],  # type: ignore[arg-type]
        "workload": PresetWorkload(requests=10),
    }
    return Scenario(**given | fields)


def faults_of(path: Path, *settings: str) -> list[str]:
    """What the file's error says, a line a fault."""
    with pytest.raises(ScenarioError) as caught:
        load_scenario(path, settings)
    return str(caught.value).splitlines()


def test_the_documented_file_says_what_it_means(tmp_path: Path) -> None:
    scenario = load_scenario(a_file(tmp_path))
    (pool,) = scenario.pools
    assert scenario.router == LeastOutstanding()
    assert scenario.slo == {"ttft_p99_s": 1.0, "tpot_p99_s": 0.05}
    assert scenario.run == Run(horizon_s=600.0, warm_up_s=30.0)
    assert scenario.workload == PresetWorkload(rate_per_s=5.0, requests=2000)
    assert pool.model is scenario.model
    assert pool.accelerator.name == "h100-sxm"
    assert pool.deployment().max_num_seqs == 256


def test_a_pool_may_have_a_model_of_its_own(tmp_path: Path) -> None:
    text = TWO_POOLS.replace('name = "code"', 'name = "code"\nmodel = "qwen3-8b"')
    scenario = load_scenario(a_file(tmp_path, text=text))
    assert [pool.model.name for pool in scenario.pools if pool.model] == ["llama-3.1-8b", "qwen3-8b"]


def test_batch_sizes_left_out_are_those_of_vllm_on_this_accelerator(tmp_path: Path) -> None:
    path = a_file(tmp_path, ("max_num_seqs = 256, max_num_batched_tokens = 8192", ""), ('{ kind = "vllm",  }', "{}"))
    deployment = load_scenario(path).pools[0].deployment()
    assert (deployment.max_num_seqs, deployment.max_num_batched_tokens) == (1024, 8192)


def test_relative_paths_start_at_the_folder_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "files").mkdir()
    (tmp_path / "trace.csv").write_text(TRACE)
    (tmp_path / "chip.toml").write_text(
        "fp16_flop_per_s = 5e14\nhbm_bandwidth_bytes_per_s = 2e12\nmemory_bytes = 8e10\n"
        "link_bandwidth_bytes_per_s = 4e11\nprice_usd_per_hour = 1\n"
    )
    path = a_file(tmp_path / "files", ("h100-sxm", "../chip.toml"))
    monkeypatch.chdir(tmp_path)
    scenario = load_scenario("files/scenario.toml", ["workload={kind = 'trace', path = '../trace.csv'}"])
    assert scenario.pools[0].accelerator.name == "chip"
    assert scenario.workload.generate(0).prompt_tokens.tolist() == [374]
    assert path.exists()


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("replicas = 1", "replica = 1", "pools[0].replica: unknown key: did you mean 'replicas'?"),
        ("[run]", "[runs]", "runs: unknown key: did you mean 'run'?"),
        ("seed = 0", "rate_per_s = 1", "rate_per_s: unknown key here; it belongs to workload.rate_per_s"),
        ("replicas = 1", "max_num_seqs = 8", "it belongs to pools.engine.scheduler.max_num_seqs"),
        ("h100-sxm", "h100-sx", "did you mean 'h100-sxm'?"),
        ("llama-3.1-8b", "lama-3.1-8b", "did you mean 'llama-3.1-8b'?"),
        (
            "azure-conversation",
            "azure-conversations",
            "workload 'azure-conversations-2023' is not in the catalogue",
        ),
        ("= 5.0", "= -5.0", "workload.rate_per_s = -5.0: must be greater than 0"),
        ("= 5.0", "= inf", "workload.rate_per_s = Infinity: must be a finite number"),
        ("requests = 2000", "requests = 'all'", 'workload.requests = "all": must be an integer'),
        (
            "max_num_seqs = 256",
            "max_num_seqs = 0",
            "pools[0].engine.scheduler.max_num_seqs = 0: must be greater than 0",
        ),
        (
            "least_outstanding",
            "least_busy",
            "router.kind = \"least_busy\": must be 'least_outstanding', 'round_robin' or",
        ),
        ('{ kind = "analytic" }', "{}", "pools[0].cost.kind: is required: 'analytic'"),
        ("ttft_p99_s", "ttft_p9_s", "slo.ttft_p9_s: unknown limit: did you mean 'ttft_p99_s'?"),
        ("ttft_p99_s", "speed", "unknown limit; allowed: <ttft|tpot|itl|e2e>_<mean|p50|p90|p95|p99>_s"),
        ("tpot_p99_s = 0.05", "tpot_p99_s = 0", "slo.tpot_p99_s = 0: must be greater than 0"),
        ("warm_up_s = 30.0", "warm_up_s = 600.0", "run: warm_up_s = 600 must be less than horizon_s = 600"),
        (
            'record = "full"',
            'record = "ful"',
            "must be 'full', 'requests' or 'summary': did you mean 'full'?",
        ),
        ('name = "chat on one H100"', "", "name: is required"),
        ('name = "chat"', 'name = "a.b"', "letters, digits, - and _"),
        ('model = "llama-3.1-8b"', "", "pools: no model for chat: give one to the scenario or to the pool"),
        ('accelerator = "h100-sxm"', "accelerator = 100", "pools[0].accelerator = 100: must be a string"),
        ("replicas = 1", "max_model_len = 0", "pools[0].max_model_len = 0: must be greater than 0 or 'auto'"),
        ("llama-3.1-8b", "llama-3.1-70b", "tensor_parallel_size = 2 would fit"),
        ("replicas = 1", "max_model_len = 200000", "pools[0]: max_model_len = 200000"),
        ("tensor_parallel_size = 1", "tensor_parallel_size = 3", "tensor_parallel_size = 3 does not divide"),
        (
            "max_num_batched_tokens = 8192",
            "max_num_batched_tokens = 64",
            "must be at least max_num_seqs = 256",
        ),
    ],
)
def test_a_fault_names_key_value_and_what_is_allowed(tmp_path: Path, old: str, new: str, said: str) -> None:
    path = a_file(tmp_path, (old, new))
    faults = faults_of(path)
    assert any(said in fault for fault in faults), faults
    assert all(fault.startswith(f"{path}: ") for fault in faults)
    assert not any(
        word in fault for fault in faults for word in ("Input", "ydantic", "dataclass", "http", "Value error")
    )


def test_one_fault_is_one_line(tmp_path: Path) -> None:
    path = a_file(tmp_path, ("= 5.0", "= -5.0"))
    assert faults_of(path) == [f"{path}: workload.rate_per_s = -5.0: must be greater than 0"]


def test_all_faults_are_told_at_once(tmp_path: Path) -> None:
    path = a_file(
        tmp_path,
        ("= 5.0", "= -5.0"),
        ("h100-sxm", "h100-sx"),
        ("max_num_seqs = 256", "max_num_seqs = 0"),
        ("tpot_p99_s", "tpot_p100_s"),
        ("leap", "leaps"),
    )
    keys = {fault.removeprefix(f"{path}: ").partition(":")[0].partition(" ")[0] for fault in faults_of(path)}
    assert keys == {
        "workload.rate_per_s",
        "pools[0].accelerator",
        "pools[0].engine.scheduler.max_num_seqs",
        "slo.tpot_p100_s",
        "run.leaps",
    }


def test_a_model_that_does_not_fit_is_told_beside_other_faults(tmp_path: Path) -> None:
    path = a_file(tmp_path, ("llama-3.1-8b", "llama-3.1-70b"), ("= 5.0", "= -5.0"))
    fit, rate = faults_of(path)
    assert "pools[0]: llama-3.1-70b does not fit on h100-sxm" in fit
    assert "workload.rate_per_s" in rate


def test_pools_need_names_of_their_own(tmp_path: Path) -> None:
    path = a_file(tmp_path, ('"code"', '"chat"'), text=TWO_POOLS)
    assert faults_of(path) == [f"{path}: pools: are named chat, chat; each needs a name of its own"]


def test_what_is_not_simulated_is_refused(tmp_path: Path) -> None:
    (fault,) = faults_of(a_file(tmp_path), "pools.data_parallel_size=2")
    assert "pools[0].data_parallel_size = 2: must be 1" in fault


def test_chunked_prefill_off_needs_a_budget_of_a_whole_prompt(tmp_path: Path) -> None:
    off = "pools.engine.scheduler.enable_chunked_prefill=false"
    (fault,) = faults_of(a_file(tmp_path), off)
    assert "max_num_batched_tokens = 8192 must be at least max_model_len = 131072" in fault
    assert load_scenario(a_file(tmp_path), [off, "pools.max_model_len=8192"]).pools[0].max_model_len == 8192


@pytest.mark.parametrize(
    ("text", "said"),
    [("a = 1\nb = [1,\nc = 3\n", "line 3"), ("name = 1\nname = 2\n", "line 2"), ("", "name: is required")],
)
def test_text_that_is_no_toml_names_the_line(tmp_path: Path, text: str, said: str) -> None:
    assert said in faults_of(a_file(tmp_path, text=text))[0]


def test_a_file_that_is_not_there_is_a_fault_of_the_user(tmp_path: Path) -> None:
    assert faults_of(tmp_path / "none.toml") == [f"{tmp_path}/none.toml: cannot be read: No such file or directory"]


def test_a_missing_trace_is_found_before_the_run(tmp_path: Path) -> None:
    (fault,) = faults_of(a_file(tmp_path), "workload={kind='trace', path='none.csv'}")
    assert fault.endswith(f"workload: path = '{tmp_path}/none.csv': there is no such file")


class TestSettings:
    def test_a_key_without_index_or_name_goes_to_every_pool(self, tmp_path: Path) -> None:
        scenario = load_scenario(a_file(tmp_path, text=TWO_POOLS), ["pools.replicas=3", "seed=7"])
        assert [pool.replicas for pool in scenario.pools] == [3, 3]
        assert scenario.seed == 7

    @pytest.mark.parametrize("which", ["code", "1"])
    def test_a_name_or_an_index_chooses_one_pool(self, tmp_path: Path, which: str) -> None:
        scenario = load_scenario(a_file(tmp_path, text=TWO_POOLS), [f"pools.{which}.replicas = 3"])
        assert [pool.replicas for pool in scenario.pools] == [1, 3]

    def test_values_are_toml_and_other_words_are_strings(self, tmp_path: Path) -> None:
        settings = ["model=qwen3-8b", "run.leap=false", "router={kind = 'round_robin'}", "slo.itl_p50_s=1e-2"]
        scenario = load_scenario(a_file(tmp_path), settings)
        assert scenario.model is not None
        assert scenario.model.name == "qwen3-8b"
        assert scenario.run.leap is False
        assert scenario.router == RoundRobin()
        assert scenario.slo["itl_p50_s"] == 0.01

    def test_keys_the_file_leaves_out_can_be_set(self, tmp_path: Path) -> None:
        engine = FILE[FILE.index("[pools.engine]") : FILE.index("[workload]")]
        path = a_file(tmp_path, (engine, ""))
        scenario = load_scenario(path, ["pools.engine.scheduler.max_num_seqs=32"])
        assert scenario.pools[0].engine.scheduler.max_num_seqs == 32

    @pytest.mark.parametrize(
        ("setting", "said"),
        [
            ("pools.replica=2", "pools[0].replica: unknown key: did you mean 'replicas'?"),
            ("pools.chta.replicas=2", "pools[0].chta: unknown key, nor is there an element of this name"),
            ("pools.1.replicas=2", "pools.1.replicas: there is no element 1; the last one is 0"),
            ("seed.x=2", "seed.x: leads nowhere, because 0 has no key 'x'"),
            ("seed", "--set seed: needs key=value"),
            ("seed=", "--set seed=: needs key=value"),
            ("slo=[1", "--set [1: not a TOML value"),
        ],
    )
    def test_a_key_that_leads_nowhere_is_a_fault(self, tmp_path: Path, setting: str, said: str) -> None:
        faults = faults_of(a_file(tmp_path), setting)
        assert any(said in fault for fault in faults), faults

    def test_with_settings_leaves_the_scenario_as_it_is(self) -> None:
        scenario = a_scenario()
        changed = scenario.with_settings({"workload.requests": 20, "pools.chat.replicas": 2})
        assert (changed.workload.requests, changed.pools[0].replicas) == (20, 2)
        assert scenario == a_scenario()

    def test_a_new_model_goes_to_the_pools_that_follow_the_scenario(self) -> None:
        own = Pool(name="own", accelerator="h100-sxm", model="qwen3-8b")  # type: ignore[arg-type]
        scenario = a_scenario(pools=[Pool(name="chat", accelerator="h100-sxm"), own])  # type: ignore[arg-type]
        changed = scenario.with_settings({"model": "llama-2-7b"})
        assert [pool.model.name for pool in changed.pools if pool.model] == ["llama-2-7b", "qwen3-8b"]

    def test_with_settings_refuses_as_a_file_does(self) -> None:
        with pytest.raises(ScenarioError, match=r"workload\.requests = -1: must be greater than 0"):
            a_scenario().with_settings({"workload.requests": -1})


class TestCanonical:
    def test_it_is_enough_to_have_the_scenario_again(self, tmp_path: Path) -> None:
        scenario = load_scenario(a_file(tmp_path, text=TWO_POOLS))
        (tmp_path / "scenario.json").write_text(scenario.canonical())
        again = load_scenario(tmp_path / "scenario.json")
        assert again == scenario
        assert again.canonical() == scenario.canonical()

    def test_defaults_written_out_and_order_change_nothing(self) -> None:
        data = {
            "workload": {"requests": 10, "kind": "preset"},
            "pools": [{"accelerator": "H100", "name": "chat", "replicas": 1, "max_model_len": "auto"}],
            "run": {"leap": True},
            "model": "llama-3.1-8b",
            "name": "small",
        }
        assert Scenario.parse(data).canonical() == a_scenario().canonical()

    def test_every_change_shows(self) -> None:
        scenario = a_scenario()
        changes: list[dict[str, Any]] = [
            {"seed": 1},
            {"model": "qwen3-8b"},
            {"pools.accelerator": "h200-sxm"},
            {"pools.engine.scheduler.policy": "priority"},
            {"workload.requests": 11},
            {"slo.ttft_p99_s": 1},
        ]
        texts = {scenario.with_settings(change).canonical() for change in changes} | {scenario.canonical()}
        assert len(texts) == len(changes) + 1

    def test_it_is_strict_json_with_sorted_keys(self) -> None:
        def check(value: Any) -> None:
            for each in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
                check(each)
            if isinstance(value, dict):
                assert list(value) == sorted(value)

        check(json.loads(a_scenario().canonical()))


class OwnRouter:
    """A router that is no specification."""

    def start(self, rng: np.random.Generator) -> Any:
        return self

    def choose(self, session: int, replicas: list[Any]) -> int:
        return 0


class OwnWorkload:
    """A workload that is no specification."""

    def generate(self, seed: int) -> RequestTable:
        return RequestTable.build(arrival_s=0.0, prompt_tokens=1, output_tokens=1)


class TestFromPython:
    def test_policies_of_the_users_own_are_taken_as_they_are(self) -> None:
        router, workload = OwnRouter(), OwnWorkload()
        scenario = a_scenario(router=router, workload=workload)
        assert scenario.router is router
        assert scenario.workload is workload
        assert "OwnRouter" in scenario.canonical()
        assert scenario.with_settings({"seed": 3}).router is router

    def test_the_same_faults_are_found_as_in_a_file(self) -> None:
        with pytest.raises(ValidationError, match="greater than 0"):
            a_scenario(slo={"ttft_p99_s": -1})
        with pytest.raises(ValidationError, match="h100-sxm"):
            Pool(name="chat", accelerator="h100-sx")  # type: ignore[arg-type]

    def test_a_scenario_does_not_change(self) -> None:
        with pytest.raises(FrozenInstanceError):
            a_scenario().seed = 1  # type: ignore[misc]

    def test_a_pool_alone_has_no_deployment_without_a_model(self) -> None:
        pool = Pool(name="chat", accelerator="h100-sxm")  # type: ignore[arg-type]
        with pytest.raises(ScenarioError, match="pool 'chat' has no model"):
            pool.deployment()
        assert a_scenario(pools=[pool]).pools[0].deployment().gpus == 1

    def test_a_deployment_has_all_that_the_pool_says(self) -> None:
        pool = replace(
            a_scenario().pools[0],
            tensor_parallel_size=2,
            max_model_len=4096,
            kv_cache_dtype="fp8",
            quantization="fp8",
            num_gpu_blocks_override=5000,
            enforce_eager=True,
            cost=LinearCost(base_s=0.01, per_token_s=0.0, per_context_token_s=0.0),
        )
        deployment = pool.deployment()
        for name in (
            "tensor_parallel_size",
            "max_model_len",
            "kv_cache_dtype",
            "quantization",
            "num_gpu_blocks_override",
            "enforce_eager",
        ):
            assert getattr(deployment, name) == getattr(pool, name)
        assert deployment.ledger().num_gpu_blocks == 5000

    def test_a_scheduler_that_waits_for_each_iteration_costs_its_host_time(self) -> None:
        """vLLM's scheduler runs ahead unless told not to; Orca's never does."""
        pool = replace(a_scenario().pools[0], cost=AnalyticCost())
        waiting = replace(pool, engine=EngineSpec(scheduler=VllmScheduler(async_scheduling=False)))
        orca = replace(pool, engine=EngineSpec(scheduler=OrcaScheduler()))
        deployments = [each.deployment() for each in (pool, waiting, orca)]
        assert [each.async_scheduling for each in deployments] == [True, False, False]
        ahead_s, waiting_s = (AnalyticCost().start(each).step(decodes(1, 100)).occupancy_s for each in deployments[:2])
        assert waiting_s - ahead_s == pytest.approx(pool.accelerator.efficiency.host_synchronous_s)


class TestSchema:
    def test_it_is_a_json_schema_that_scenario_files_keep(self) -> None:
        jsonschema = pytest.importorskip("jsonschema")
        schema = scenario_schema()
        jsonschema.Draft202012Validator.check_schema(schema)
        check = jsonschema.Draft202012Validator(schema)
        assert check.is_valid(tomllib.loads(FILE))
        for old, new in (("= 5.0", "= -5.0"), ("replicas", "replica"), ("ttft_p99_s", "ttft_p9_s")):
            assert not check.is_valid(tomllib.loads(FILE.replace(old, new)))

    def test_it_explains_keys(self) -> None:
        schema = scenario_schema()
        scheduler = schema["$defs"]["VllmScheduler"]["properties"]
        assert scheduler["max_num_seqs"]["description"] == "Most requests running at once."
        assert "config.json" in schema["properties"]["model"]["description"]
