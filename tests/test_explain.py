"""The explanation of a deployment: its arithmetic, worked numbers of the field, and how it reads."""

import json
from typing import Any

import pytest

from llmsim.cli import main
from llmsim.closed_form import EnvelopeCost, Line, decodes, prompts, saturated
from llmsim.cost import AnalyticCost
from llmsim.cost.analytic import AnalyticModel
from llmsim.errors import ScenarioError
from llmsim.report.explain import SECTIONS, Explanation, Question, explain
from llmsim.report.explain.lines import Section
from llmsim.report.explain.options import explained
from llmsim.report.explain.text import WIDTH, render
from tests.cost.factories import a_decode, a_deployment, a_latent_model, a_prefill, a_windowed_model, account_of

DEPLOYMENTS = {
    "dense": a_deployment(),
    "tensor parallel": a_deployment("llama-3.1-70b", tensor_parallel_size=4, quantization="fp8", kv_cache_dtype="fp8"),
    "pipeline": a_deployment("llama-3.1-70b", "a100-sxm-80gb", tensor_parallel_size=2, pipeline_parallel_size=2),
    "experts": a_deployment("mixtral-8x7b", tensor_parallel_size=4),
    "windowed": a_deployment(a_windowed_model()),
    "latent": a_deployment(a_latent_model(), "h200-sxm", tensor_parallel_size=8),
    "linear": a_deployment("qwen3-next-80b-a3b", pipeline_parallel_size=4),
    "too large": a_deployment("llama-3.1-70b"),
    "sglang": a_deployment(engine="sglang", block_size=1),
    "tensorrt-llm": a_deployment(engine="tensorrt-llm", block_size=32, draft_layers=1),
}
EACH = pytest.mark.parametrize("name", DEPLOYMENTS)
Output = pytest.CaptureFixture[str]


def an_explanation(name: str = "dense", only: Any = SECTIONS, **question: Any) -> Explanation:
    return explain(DEPLOYMENTS[name], Question(**question), only)


def section(name: str = "dense", key: str = "prefill", **question: Any) -> Section:
    (found,) = an_explanation(name, (key,), **question).sections
    return found


def value(of: Section, key: str) -> float:
    return of[key].value


class TestArithmetic:
    @EACH
    @pytest.mark.parametrize("ideal", [False, True], ids=["full", "ideal"])
    def test_every_formula_gives_its_value(self, name: str, ideal: bool) -> None:
        lines = [
            line
            for each in an_explanation(name, ideal=ideal, prompt_tokens=3000, batch=16, rate_per_s=10.0).sections
            for line in each.lines
            if line.formula
        ]
        assert len(lines) >= 15
        for line in lines:
            found = eval(line.numbers, {"__builtins__": {}}, {"min": min, "max": max})
            assert found == pytest.approx(line.value, rel=2e-3, abs=1e-9), line

    def test_a_term_is_replaced_as_a_whole_word(self) -> None:
        line = Line("k", "l", 12.0, "", "layers * layers_of", {"layers": 3, "layers_of": 4})
        assert line.numbers == "3 * 4"

    @EACH
    def test_flop_of_the_formula_are_those_of_the_operators(self, name: str) -> None:
        batch = prompts(1, 3000, window=DEPLOYMENTS[name].model.sliding_window)
        counted = account_of(AnalyticCost(ideal=True).start(DEPLOYMENTS[name]), batch).flop
        found = value(section(name, prompt_tokens=3000), "flop")
        if name == "latent":  # every rank makes the latent vectors anew
            assert counted * 0.8 < found < counted
        else:
            assert found == pytest.approx(counted, rel=0.01)

    def test_the_time_is_what_the_cost_model_says(self) -> None:
        cost = AnalyticCost().start(DEPLOYMENTS["dense"])
        found = section(prompt_tokens=4000)
        assert value(found, "prefill_s") == cost.step(prompts(1, 4000)).occupancy_s
        operators = {row["operator"]: row["seconds"] for row in found.as_dict()["operators"]}
        assert sum(operators.values()) == pytest.approx(value(found, "prefill_s"))


class TestWorkedNumbers:
    """The interview questions' arithmetic: 0.55 of peak FLOP/s and 0.65 of bandwidth."""

    @pytest.mark.parametrize(
        ("accelerator", "tokens", "prefill_ms", "tpot_ms", "attention"),
        [
            ("h100-sxm", 500, 13.0, 6.9, 0.01),
            ("h100-sxm", 4000, 110.4, 7.1, 0.07),
            ("h100-sxm", 15000, 493.4, 7.8, 0.22),
            ("h100-sxm", 30000, 1203.7, 8.7, 0.36),
            ("h100-sxm", 100000, 7385.7, 12.9, 0.65),
            ("l4", 4000, 902.1, 79.7, 0.07),
            ("l4", 100000, 60367.3, 144.2, 0.65),
        ],
    )
    def test_a_long_document(
        self, accelerator: str, tokens: int, prefill_ms: float, tpot_ms: float, attention: float
    ) -> None:
        deployment = a_deployment(accelerator=accelerator)
        asked = Question(prompt_tokens=tokens, output_tokens=1, ideal=True)
        found = {each.key: each for each in explain(deployment, asked).sections}
        assert 1e3 * value(found["prefill"], "prefill_s") == pytest.approx(prefill_ms, rel=0.005)
        assert 1e3 * value(found["decode"], "step_s") == pytest.approx(tpot_ms, rel=0.008)
        assert value(found["prefill"], "attention_share") == pytest.approx(attention, abs=0.006)

    def test_attention_equals_the_matrices_at_53_thousand_tokens(self) -> None:
        assert value(section(), "attention_even_tokens") == pytest.approx(53e3, rel=0.01)

    def test_compute_passes_memory_at_268_tokens(self) -> None:
        assert value(section(ideal=True), "knee_tokens") == pytest.approx(268, rel=0.005)

    @pytest.mark.parametrize(("accelerator", "ridge"), [("h100-sxm", 295), ("a100-sxm-80gb", 153), ("l4", 403)])
    def test_ridge_points(self, accelerator: str, ridge: float) -> None:
        (found,) = explain(a_deployment(accelerator=accelerator), only=("decode",)).sections
        assert value(found, "ridge") == pytest.approx(ridge, rel=0.005)

    @pytest.mark.parametrize(
        ("model", "size"), [("llama-3.1-8b", 131072), ("llama-3.1-70b", 327680), ("llama-2-7b", 524288)]
    )
    def test_kv_of_a_token(self, model: str, size: int) -> None:
        (found,) = explain(a_deployment(model, "b200-sxm"), only=("memory",)).sections
        assert value(found, "kv_bytes_per_token") == size

    def test_kv_of_a_latent_model_and_of_a_draft_head(self) -> None:
        assert value(section("latent", "memory"), "kv_bytes_per_token") == 70272
        assert value(section("tensorrt-llm", "memory"), "kv_bytes_per_token") == 132 * 1024

    @pytest.mark.parametrize(
        ("batch", "step_ms"), [(1, 6.92), (8, 7.14), (32, 7.88), (64, 8.87), (128, 10.84), (256, 14.78), (512, 22.67)]
    )
    def test_the_step_rises_with_the_batch(self, batch: int, step_ms: float) -> None:
        found = section(key="decode", ideal=True, prompt_tokens=512, output_tokens=1, batch=batch)
        assert 1e3 * value(found, "step_s") == pytest.approx(step_ms, rel=0.005)

    def test_a_lone_decode_needs_at_least_4_52_ms(self) -> None:
        found = section(key="decode", prompt_tokens=1000, output_tokens=1)
        assert 1e3 * value(found, "memory_floor_s") == pytest.approx(4.52, rel=0.003)

    @pytest.mark.parametrize(("batch", "step_ms", "gpus"), [(64, 11.7, 2652), (256, 15.8, 893), (384, 18.5, 697)])
    def test_a_hundred_million_users(self, batch: int, step_ms: float, gpus: float) -> None:
        """14,468 requests a second of 1,000 in and 250 out on a 70B in fp8, TP 4; prefill alone needs 2,245 GPUs. The
        LM head is 16 bit here, and prefill counts its all-reduces: about 1 % more."""
        asked = Question(
            prompt_tokens=1000,
            output_tokens=250,
            batch=batch,
            rate_per_s=14468,
            ideal=True,
            envelope=EnvelopeCost(mfu=0.45),
        )
        decode, capacity = explain(DEPLOYMENTS["tensor parallel"], asked, ("decode", "capacity")).sections
        assert 1e3 * value(decode, "step_s") == pytest.approx(step_ms, rel=0.015)
        assert value(capacity, "gpus") == pytest.approx(2245 + gpus, rel=0.015)

    def test_the_public_load_curve(self) -> None:
        """kubernetes-sigs/inference-perf, Llama-3.1-8B on H100, 200 in and 62 out, 128 slots."""
        deployment = DEPLOYMENTS["dense"]
        found = saturated(EnvelopeCost().start(deployment), deployment, 200, 62, 128)
        assert 1 / found.request_s == pytest.approx(103.1, rel=0.05)
        assert 19.5e-3 * 0.98 <= found.tpot_s <= 20.0e-3 * 1.02


class TestBatches:
    @pytest.mark.parametrize("window", [None, 100, 5000])
    @pytest.mark.parametrize(("prefix", "new"), [(0, 1), (0, 300), (50, 60), (200, 300)])
    def test_a_prompts_pairs_are_those_of_each_position(self, prefix: int, new: int, window: int | None) -> None:
        assert prompts(3, new, prefix, window) == a_prefill(new, prefix=prefix, sequences=3, window=window)
        assert decodes(3, prefix + new, window) == a_decode(3, prefix + new, window=window)


class TestFullModel:
    def test_it_says_how_it_differs_from_the_envelope(self) -> None:
        (note,) = section(prompt_tokens=4000).notes
        assert "110 ms" in note
        assert "launches and host" in note
        assert not section(prompt_tokens=4000, ideal=True).notes

    def test_ideal_and_full_do_the_same_work(self) -> None:
        full, ideal = (section(prompt_tokens=4000, ideal=each) for each in (False, True))
        assert value(full, "flop") == value(ideal, "flop")

    def test_a_model_that_does_not_fit_is_explained(self) -> None:
        found = section("too large", "memory")
        assert value(found, "fits") == 0
        text = " ".join(found.notes)
        assert "does not fit" in text
        for remedy in ("tensor_parallel_size = 2", "quantization = fp8", "accelerator = b200-sxm"):
            assert remedy in text
        assert a_deployment("llama-3.1-70b", quantization="fp8").ledger().num_gpu_blocks > 2

    def test_verification_of_drafts(self) -> None:
        """Four drafted tokens at 16 sequences of an 8B: 80 tokens of one step, which one accepted draft in ten pays."""
        found = section(key="decode", prompt_tokens=1000, output_tokens=2, batch=16, num_speculative_tokens=4)
        verify_s = AnalyticModel(DEPLOYMENTS["dense"]).verify(16, 5, 1005)
        assert value(found, "verify_s") == verify_s
        assert value(found, "verify_break_even") == pytest.approx(verify_s / value(found, "step_s") - 1)
        assert 0 < value(found, "verify_break_even") < 0.1
        assert value(found, "verify_best_tpot_s") == pytest.approx(verify_s / 5)
        assert not any(line.key.startswith("verify") for line in section(key="decode").lines)

    def test_more_slots_than_memory_holds_are_noted(self) -> None:
        assert any("not 5,000" in note for note in section(key="capacity", batch=5000).notes)


class TestCommand:
    ARGUMENTS = ("explain", "--model", "llama-3.1-8b", "--accelerator", "h100-sxm")

    @EACH
    def test_it_fits_80_columns(self, name: str) -> None:
        assert max(map(len, render(an_explanation(name)).splitlines())) <= WIDTH

    def test_json_has_each_section_under_its_key(self, capsys: Output) -> None:
        assert main([*self.ARGUMENTS, "--json", "--prompt", "4000"]) == 0
        printed = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
        assert set(SECTIONS) < set(printed)
        line = printed["prefill"]["flop"]
        assert line["value"] == value(section(prompt_tokens=4000), "flop")
        assert "4000" in line["numbers"]

    def test_only_prints_what_is_asked_for(self, capsys: Output) -> None:
        assert main([*self.ARGUMENTS, "--only", "memory"]) == 0
        text = capsys.readouterr().out
        assert "KV pool" in text
        assert "PREFILL" not in text

    @pytest.mark.parametrize(
        ("given", "message"),
        [
            ({"only": ["memry"]}, "did you mean 'memory'"),
            ({"tensor_parallel_size": 3}, "allowed: 1, 2, 4"),
            ({"quantization": "fp7"}, "fp8"),
            ({"prompt": 0}, "prompt_tokens = 0"),
            ({"mfu": 2.0}, "mfu = 2.0"),
            ({"ideal": True, "num_speculative_tokens": 4}, "does not price verification"),
        ],
    )
    def test_faults_name_what_is_allowed(self, given: dict[str, Any], message: str) -> None:
        with pytest.raises(ScenarioError, match=message):
            explained({"model": "llama-3.1-8b", "accelerator": "h100-sxm", **given})
