"""The linear cost: its formula."""

import pytest
from pydantic import TypeAdapter

from llmsim.cost import AnalyticCost, CostSpec, LinearCost
from tests.cost.factories import a_decode, a_deployment, a_prefill, stacked, together


def test_tokens_and_context_add_up() -> None:
    cost = LinearCost(base_s=0.001, per_token_s=1e-5, per_context_token_s=1e-8).start(a_deployment())
    mixed = together(a_prefill(100, prefix=50), a_decode(4, 1000))
    assert cost.step(mixed).occupancy_s == pytest.approx(0.001 + 104 * 1e-5 + 4150 * 1e-8)
    assert cost.step(mixed).latency_s == cost.step(mixed).occupancy_s


def test_the_account_is_the_duration() -> None:
    cost = LinearCost(base_s=0.001, per_token_s=1e-5, per_context_token_s=1e-8)
    batches = [a_prefill(100), a_decode(3, 50)]
    account = cost.account(stacked(*batches))
    times = account.compute_s + account.hbm_s + account.link_s + account.overhead_s
    assert times == pytest.approx([cost.step(batch).occupancy_s for batch in batches])


def test_a_negative_cost_is_refused() -> None:
    with pytest.raises(ValueError, match="per_token_s"):
        LinearCost(per_token_s=-1.0)


def test_a_file_names_a_cost_by_its_kind() -> None:
    parser: TypeAdapter[AnalyticCost | LinearCost] = TypeAdapter(CostSpec)
    assert parser.validate_python({"kind": "linear", "base_s": 0.01}) == LinearCost(base_s=0.01)
    assert parser.validate_python({"kind": "analytic"}) == AnalyticCost()
    with pytest.raises(ValueError, match="kind"):
        parser.validate_python({"kind": "oracle"})
