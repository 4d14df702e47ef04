"""Tables of step times: their points, between and beyond them, both forms alike, and the bound of the chip."""

from pathlib import Path

import pytest

from llmsim.cost import CostModel, TableCost
from llmsim.cost.table import COLUMNS
from llmsim.errors import ScenarioError
from llmsim.scenario import load_scenario
from llmsim.simulation import simulate
from tests.cost.factories import a_decode, a_deployment, a_prefill, account_of, together

DECODES = [
    f"decode,{batch},1,{context},{10 + batch + batch * context / 1000}"
    for batch in (1, 8, 64)
    for context in (128, 1024, 8192)
]
PROMPTS = [f"prefill,1,{tokens},{tokens},{tokens / 10}" for tokens in (128, 1024, 8192)]
MIXED = ["mixed,8,512,1024,60"]
HEADER = "phase,batch,new_tokens_per_seq,context,latency_ms"


def a_table_file(folder: Path, rows: list[str], header: str = HEADER) -> Path:
    path = folder / "steps.csv"
    path.write_text("\n".join([header, *rows]) + "\n")
    return path


@pytest.fixture
def table(tmp_path: Path) -> CostModel:
    return TableCost(path=a_table_file(tmp_path, DECODES + PROMPTS + MIXED)).start(a_deployment())


def test_its_own_points_are_met(table: CostModel) -> None:
    assert table.step(a_decode(8, 1024)).occupancy_s == pytest.approx(26.192e-3)
    assert table.step(a_prefill(1024)).occupancy_s == pytest.approx(102.4e-3)
    assert table.step(together(a_prefill(512), a_decode(8, 1024))).occupancy_s == pytest.approx(60e-3)


def test_between_points_it_is_linear_in_tokens_and_context(table: CostModel) -> None:
    """The times are linear in batch and in batch x context, so that linear interpolation is exact."""
    for batch, context in ((1, 500), (4, 128), (20, 1024), (36, 3000)):
        expected_ms = 10 + batch + batch * context / 1000
        assert table.step(a_decode(batch, context)).occupancy_s == pytest.approx(expected_ms * 1e-3)


def test_it_never_beats_the_chip(tmp_path: Path) -> None:
    """16 GB of weights at 3.35 TB/s take 4.8 ms whatever a table says."""
    rows = ["decode,1,1,128,0.001", "decode,64,1,128,0.001", *PROMPTS]
    cost = TableCost(path=a_table_file(tmp_path, rows)).start(a_deployment())
    assert cost.step(a_decode(1, 128)).occupancy_s > 4e-3


def test_it_says_where_it_extrapolates(table: CostModel) -> None:
    with pytest.warns(UserWarning, match="decode of 100 tokens at a context of 1024.* 1 to 64 tokens"):
        seconds = table.step(a_decode(100, 1024)).occupancy_s
    assert seconds == pytest.approx((10 + 100 + 102.4) * 1e-3)


def test_the_account_adds_up_to_the_time(table: CostModel) -> None:
    batch = together(a_prefill(512), a_decode(8, 1024))
    account = account_of(table, batch)
    parts_s = account.compute_s + account.hbm_s + account.link_s + account.overhead_s
    assert parts_s == pytest.approx(table.step(batch).occupancy_s)
    assert account.flop > 0


@pytest.mark.parametrize(
    ("rows", "header", "message"),
    [
        (["decode,1,1,128,x"], HEADER, "line 2: could not convert"),
        (["decode,1,1,128,0"], HEADER, "line 2: .*above 0"),
        (["warm,1,1,128,3"], HEADER, "line 2: phase = 'warm'; allowed: decode, prefill, mixed"),
        (DECODES, HEADER, "no row of phase prefill or mixed"),
        (["decode,3"], "phase,latency_ms", "lacks batch, context"),
        (["decode,1,1,128,3,a", "decode,1,1,128,3,b"], HEADER + ",model", "several deployments: model is a, b"),
    ],
)
def test_a_wrong_table_is_refused(tmp_path: Path, rows: list[str], header: str, message: str) -> None:
    path = a_table_file(tmp_path, rows, header)
    with pytest.raises(ScenarioError, match=message):
        TableCost(path=path).start(a_deployment())


def test_a_scenario_names_it_relative_to_its_file(tmp_path: Path) -> None:
    assert set(COLUMNS) <= set(HEADER.split(","))
    a_table_file(tmp_path, DECODES + PROMPTS)
    (tmp_path / "scenario.toml").write_text(
        'name = "measured"\nmodel = "llama-3.1-8b"\n'
        '[[pools]]\nname = "one"\naccelerator = "h100-sxm"\ncost = { kind = "table", path = "steps.csv" }\n'
        '[workload]\nkind = "clients"\nrequests = 3\n'
        '[[workload.clients]]\nname = "user"\nusers = 1\nrequests_per_user = 3\n'
        'prompt_tokens = { kind = "fixed", tokens = 1024 }\noutput_tokens = { kind = "fixed", tokens = 9 }\n'
    )
    results = simulate(load_scenario(tmp_path / "scenario.toml"))
    assert results.requests.first_token_s[0] == pytest.approx(102.4e-3)
    with pytest.raises(ScenarioError, match="there is no such file"):
        load_scenario(tmp_path / "scenario.toml", ['pools.cost.path="none.csv"'])
