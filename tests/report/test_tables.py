"""Numbers as people write them."""

import pytest

from llmsim.report.tables import duration, memory_rows, money, number, percent, run_rows
from tests.results.factories import some_facts


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (number(12345.6), "12,346"),
        (number(7.0), "7"),
        (number(0.1234), "0.123"),
        (number(None), "–"),
        (percent(0.5), "50 %"),
        (percent(0.0123), "1.2 %"),
        (percent(0.0), "0 %"),
        (percent(None), "–"),
        (money(1234.5), "$1,234.50"),
        (money(0.0123), "$0.0123"),
        (money(None), "–"),
        (duration(None), "–"),
        (duration(0.0), "0 s"),
        (duration(0.25), "250 ms"),
    ],
)
def test_numbers_for_people(text: str, expected: str) -> None:
    assert text == expected


def test_the_workload_is_told_from_the_scenario() -> None:
    text = '{"workload": {"kind": "preset", "name": "azure", "rate_per_s": 5.0, "requests": 2000}}'
    rows = dict(run_rows(some_facts(scenario_text=text, slo={"ttft_p99_s": 1.0})))
    assert rows["Workload"] == "preset azure, rate_per_s 5.0, requests 2,000"
    assert rows["SLO"] == "TTFT p99 ≤ 1 s"


def test_the_ledger_is_found_wherever_the_pool_keeps_it() -> None:
    pool = {"name": "chat", "memory": {"weights_bytes": 5, "num_gpu_blocks": 7}, "replicas": 1}
    assert memory_rows(pool) == [("weights", 5)]
