"""What would help is found by pulling each lever alone."""

import pytest

from llmsim.cost import AnalyticCost
from llmsim.errors import ScenarioError
from llmsim.study.whatif import what_if
from tests.factories import a_scenario, a_table, an_accelerator


def test_slots_help_who_waits_for_them_and_bandwidth_who_decodes() -> None:
    table = a_table(arrival_s=[0.1 * i for i in range(80)], prompt_tokens=200, output_tokens=100)
    scenario = a_scenario(table, cost=AnalyticCost(), max_num_seqs=10, slo={"ttft_p99_s": 1.0})
    crowded = scenario.with_settings({"pools.engine.scheduler.max_num_seqs": 5})
    queue = {lever.name: lever for lever in what_if(crowded, "ttft_s.p99", pairs=2).levers}
    assert queue["max_num_seqs"].change.value < -0.05
    assert queue["KV blocks"].change.value == 0
    decode = what_if(scenario, "tpot_s.p50", pairs=2)
    assert decode.levers[0].name == "HBM bandwidth"
    assert -0.10 < decode.levers[0].change.value < -0.03
    assert "link bandwidth" not in {lever.name for lever in decode.levers}
    assert decode.advice.startswith("To better tpot_s.p50, try more HBM bandwidth")


def test_engines_of_several_gpus_have_links() -> None:
    scenario = a_scenario(
        a_table(output_tokens=20), cost=AnalyticCost(), tensor_parallel_size=2, accelerator=an_accelerator()
    )
    assert "link bandwidth" in what_if(scenario, "tpot_s.p50", pairs=2).frame["lever"].tolist()


def test_only_figures_with_a_better_can_be_bettered() -> None:
    with pytest.raises(ScenarioError, match="metric seed"):
        what_if(a_scenario(), "seed")
