"""Closed forms against worked numbers of the field, hand arithmetic, and queueing theory."""

import math

import pytest

from llmsim.closed_form import (
    EnvelopeCost,
    FleetEstimate,
    attention_even_tokens,
    attention_share,
    beam_blocks,
    conversation,
    crossover_ratio,
    decodes,
    empty_share,
    fleet,
    in_flight,
    interactive_users,
    knee_tokens,
    latency_s,
    mean_wait_s,
    prompts,
    reading_tokens_per_s,
    ridge_flop_per_byte,
    saturated,
    sequences_for,
    sequences_in_pool,
    spent,
    square_root_staffing,
    together,
)
from llmsim.deployment import Deployment
from tests.cost.factories import a_deployment, a_windowed_model

EIGHT = a_deployment()
SEVENTY = a_deployment("llama-3.1-70b", tensor_parallel_size=4, quantization="fp8", kv_cache_dtype="fp8")
PEAK_PER_S = 100e6 * 5 / 86_400 * 2.5


def a_fleet(sequences: int = 256, **given: float) -> FleetEstimate:
    return fleet(EnvelopeCost(mfu=0.45).start(SEVENTY), SEVENTY, PEAK_PER_S, 1000, 250, sequences, **given)


class TestRoofline:
    def test_attention_overtakes_the_matrices_at_53_thousand_tokens(self) -> None:
        even = attention_even_tokens(EIGHT)
        assert even == pytest.approx(6.98e9 / (32 * 4096), rel=0.01)
        assert attention_share(EIGHT, even or 0) == pytest.approx(0.5, abs=1e-4)

    @pytest.mark.parametrize(
        ("tokens", "share"), [(500, 0.01), (4000, 0.07), (15_000, 0.22), (30_000, 0.36), (100_000, 0.65)]
    )
    def test_attention_share(self, tokens: int, share: float) -> None:
        assert attention_share(EIGHT, tokens) == pytest.approx(share, abs=0.006)

    def test_a_window_keeps_attention_below_the_matrices(self) -> None:
        windowed = a_deployment(a_windowed_model())
        assert attention_share(windowed, 100_000) < attention_share(a_deployment("mistral-7b-v0.3"), 100_000)

    @pytest.mark.parametrize(("chip", "ridge"), [("h100-sxm", 295), ("a100-sxm-80gb", 153), ("l4", 403), ("t4", 203)])
    def test_ridge(self, chip: str, ridge: float) -> None:
        assert ridge_flop_per_byte(a_deployment(accelerator=chip)) == pytest.approx(ridge, rel=0.005)

    def test_compute_passes_memory_near_the_ridge(self) -> None:
        """At 268 tokens by the matrices alone: 295 * 0.55 / 0.65, in 16 bit, and a larger LM head to read."""
        knee = knee_tokens(EnvelopeCost().start(EIGHT))
        assert knee == pytest.approx(268, rel=0.02)
        assert knee == pytest.approx(ridge_flop_per_byte(EIGHT), rel=0.2)

    def test_an_iteration_is_the_sum_of_its_parts(self) -> None:
        both = together(prompts(1, 512), decodes(8, 1000))
        cost = EnvelopeCost().start(EIGHT)
        parts = [spent(cost, part).flop for part in (prompts(1, 512), decodes(8, 1000))]
        assert spent(cost, both).flop == pytest.approx(sum(parts))
        assert both.sampled == 9


class TestRequests:
    def test_a_long_prompt_wins_above_a_ratio_of_4_97(self) -> None:
        ratio = crossover_ratio((960, 10), (16, 200))
        assert ratio == pytest.approx(4.97, abs=0.005)
        for factor, sooner in ((1.01, True), (0.99, False)):
            prefill, decode = factor * ratio * 10, 10.0
            a, b = (latency_s(prompt / prefill, 1 / decode, output) for prompt, output in ((960, 10), (16, 200)))
            assert (a < b) == sooner

    def test_a_laptop_lets_the_long_answer_win(self) -> None:
        a, b = (latency_s(prompt / 40, 1 / 10, output) for prompt, output in ((960, 10), (16, 200)))
        assert (a, b) == (pytest.approx(24.9), pytest.approx(20.3))

    def test_a_race_without_a_crossing_is_refused(self) -> None:
        with pytest.raises(ValueError, match="longer prompt"):
            crossover_ratio((16, 200), (960, 10))

    @pytest.mark.parametrize(
        ("turns", "prefilled", "factor", "last"),
        [(5, 2750, 11, 1050), (10, 11_750, 24, 2300), (20, 48_500, 48, 4800), (40, 197_000, 98, 9800)],
    )
    def test_a_chat_resends_the_square_of_its_turns(self, turns: int, prefilled: int, factor: int, last: int) -> None:
        chat = conversation(turns, 50, 200)
        assert chat[:1] == (prefilled,)
        assert chat.factor == pytest.approx(factor, abs=0.6)
        assert (chat.new_tokens, chat.output_tokens, chat.last_prompt_tokens) == (50 * turns, 200 * turns, last)
        assert prefilled == sum(50 + 250 * turn for turn in range(turns))

    def test_streaming_hides_all_but_the_first_wait(self) -> None:
        assert latency_s(0.1, 0.012, 300) == pytest.approx(3.69, abs=0.005)
        assert reading_tokens_per_s() == pytest.approx(5.6, abs=0.05)


class TestMemory:
    def test_beams_share_the_prompt(self) -> None:
        found = beam_blocks(960, 200, 4)
        assert (found.unshared, found.shared) == (292, 112)
        assert found.saved == pytest.approx(0.62, abs=0.005)

    def test_each_beam_copies_a_partly_filled_block(self) -> None:
        assert beam_blocks(970, 1, 4).shared == 60 + 4
        assert beam_blocks(960, 1, 1) == (61, 61)

    def test_reserving_more_than_is_used_costs_sequences(self) -> None:
        pool = 262_144
        assert [sequences_in_pool(pool, tokens) for tokens in (8192, 768, 768)] == [32, 341, 341]

    def test_blocks_waste_little(self) -> None:
        """Under 4 % with blocks of 16 (SOSP 2023 paper of PagedAttention), none with single tokens."""
        assert empty_share(768, 16) < 0.04
        assert empty_share(768, 1) == 0
        lengths = range(1, 257)
        held = sum(-(-tokens // 16) * 16 for tokens in lengths)
        assert empty_share(sum(lengths) / 256, 16) == pytest.approx(1 - sum(lengths) / held)


class TestQueues:
    @pytest.mark.parametrize(
        ("load", "before_ms", "after_ms", "fall"),
        [(0.5, 12.5, 10.8, 0.14), (0.8, 50.2, 37.7, 0.25), (0.9, 112.9, 70.3, 0.38), (0.95, 238.3, 110.3, 0.54)],
    )
    def test_a_little_speed_is_amplified_by_a_queue(
        self, load: float, before_ms: float, after_ms: float, fall: float
    ) -> None:
        before, after = mean_wait_s(25.08e-3, load), mean_wait_s(0.95 * 25.08e-3, 0.95 * load)
        assert 1e3 * before == pytest.approx(before_ms, rel=0.005)
        assert 1e3 * after == pytest.approx(after_ms, rel=0.005)
        assert 1 - after / before == pytest.approx(fall, abs=0.006)

    def test_spread_service_waits_longer(self) -> None:
        assert mean_wait_s(1.0, 0.5, 1.0) == pytest.approx(1.0), "M/M/1: rho / (1 - rho)"
        assert mean_wait_s(1.0, 0.5) == pytest.approx(0.5), "M/D/1: half of it"
        assert mean_wait_s(1.0, 1.0) == math.inf

    @pytest.mark.parametrize(("servers", "load"), [(2, 0.5), (10, 0.9), (64, 0.95)])
    def test_many_servers_wait_as_erlang_says(self, servers: int, load: float) -> None:
        """Erlang's C formula is exact for exponential service; the approximation is within 10 % of it here."""
        terms = [1.0]
        for k in range(1, servers + 1):
            terms.append(terms[-1] * servers * load / k)
        all_busy = terms[-1] / (1 - load)
        exact = all_busy / (sum(terms[:-1]) + all_busy) / (servers * (1 - load))
        assert mean_wait_s(1.0, load, 1.0, servers) == pytest.approx(exact, rel=0.1)

    def test_littles_law(self) -> None:
        assert in_flight(14_468, 4.45) == pytest.approx(64_369, rel=0.001)
        assert interactive_users(10.0, 2.0, 28.0) == 300

    def test_a_larger_fleet_needs_a_smaller_share_of_headroom(self) -> None:
        assert square_root_staffing(100.0) == 120
        assert square_root_staffing(10_000.0) == 10_200


class TestSaturation:
    def test_sequences_that_serve_a_rate(self) -> None:
        cost = EnvelopeCost().start(EIGHT)
        rates = {count: 1 / saturated(cost, EIGHT, 500, 250, count).request_s for count in (1, 7, 64)}
        for count, rate in rates.items():
            assert sequences_for(cost, EIGHT, 500, 250, 0.999 * rate, 128) == count
        assert sequences_for(cost, EIGHT, 500, 250, 1e6, 128) == 128, "no fewer do"


class TestFleet:
    """100 million daily users: a 70B in fp8 on four H100 each, 1,000 in and 250 out, 0.45 of the fp8 peak.

    The worked numbers count 250 decode steps, not 249, an LM head of 8 bit, and no all-reduces in prefill: up to 2 %.
    """

    @pytest.mark.parametrize(
        ("sequences", "step_ms", "decode_gpus"),
        [(64, 11.7, 2652), (128, 13.1, 1479), (256, 15.8, 893), (384, 18.5, 697)],
    )
    def test_decode(self, sequences: int, step_ms: float, decode_gpus: float) -> None:
        found = a_fleet(sequences)
        assert 1e3 * found.step_s == pytest.approx(step_ms, rel=0.015)
        assert found.decode_gpus == pytest.approx(decode_gpus, rel=0.015)

    def test_prefill_concurrency_and_memory(self) -> None:
        found = a_fleet()
        assert found.prefill_gpus == pytest.approx(2245, rel=0.02)
        assert found.in_flight == pytest.approx(64_369, rel=0.015)
        assert found.decoding == pytest.approx(57_135, rel=0.015)
        assert found.kv_bytes == pytest.approx(11.9e12, rel=0.015)

    def test_headroom_and_money(self) -> None:
        found = a_fleet()
        assert found.raw_gpus == pytest.approx(3138, rel=0.015)
        assert found.gpus == pytest.approx(5604, rel=0.015)
        assert found.usd_per_day(2.5) == pytest.approx(336e3, rel=0.015)
        assert found.usd_per_day(2.5) / 5e5 == pytest.approx(0.672, rel=0.015), "a thousand requests"

    def test_half_the_prompts_from_a_cache(self) -> None:
        assert a_fleet(cached_share=0.5).gpus == pytest.approx(3599, rel=0.015)

    def test_sizes_of_ranks_count_as_gpus(self) -> None:
        def gpus(deployment: Deployment) -> float:
            return fleet(EnvelopeCost(all_reduce_s=0.0).start(deployment), deployment, 100.0, 1000, 250, 64).decode_gpus

        assert gpus(a_deployment(tensor_parallel_size=2)) == pytest.approx(gpus(EIGHT), rel=0.01)
