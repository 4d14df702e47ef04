"""Clients: rates, independence, sessions and closed loops."""

from pathlib import Path
from time import process_time

import numpy as np
import pytest
from pydantic import ValidationError

from llmsim.errors import ScenarioError
from llmsim.workload import Client, ClientsWorkload, RequestTable
from llmsim.workload.arrivals import Constant, Gamma
from llmsim.workload.lengths import Fixed, Lognormal, Uniform
from llmsim.workload.rates import Steps
from llmsim.workload.trace_rows import TraceRows
from tests.workload.factories import a_client, a_table, prompt_of


def rows_of(table: RequestTable, name: str) -> np.ndarray:
    """Arrival, lengths and max_tokens of one client's requests."""
    mine = table.client == table.client_names.index(name)
    return np.array([table.arrival_ns, table.prompt_tokens, table.output_tokens, table.max_tokens])[:, mine]


def test_the_rate_is_the_one_asked_for() -> None:
    table = a_table(a_client(rate_per_s=20.0), requests=None, duration_s=2_000.0)
    assert len(table) == pytest.approx(40_000, abs=4 * np.sqrt(40_000))


def test_same_seed_same_requests_and_another_seed_others() -> None:
    first, again, other = a_table(seed=1), a_table(seed=1), a_table(seed=2)
    for name in ("arrival_ns", "prompt_tokens", "output_tokens"):
        np.testing.assert_array_equal(getattr(first, name), getattr(again, name))
    assert not np.array_equal(first.arrival_ns, other.arrival_ns)
    assert not np.array_equal(first.prompt_tokens, other.prompt_tokens)


@pytest.mark.parametrize(
    "change",
    [
        {"rate_per_s": 9.0},
        {"arrivals": Gamma(cv=4.0)},
        {"prompt_tokens": Lognormal(mean=3000.0, p99=9000.0)},
        {"turns": Fixed(tokens=3), "think_s": 4.0},
        {"shared_prefix_tokens": 100, "shared_prefixes": 4},
    ],
)
def test_changing_one_client_leaves_the_others_requests(change: dict[str, object]) -> None:
    batch = a_client("batch", rate_per_s=3.0, max_tokens=20)
    before, after = (
        a_table(a_client("chat", **fields), batch, requests=None, duration_s=300.0) for fields in ({}, change)
    )
    assert not np.array_equal(rows_of(before, "chat"), rows_of(after, "chat"))
    np.testing.assert_array_equal(rows_of(before, "batch"), rows_of(after, "batch"))


def test_a_change_of_rate_keeps_lengths_and_gaps() -> None:
    slow, fast = (a_table(a_client(rate_per_s=rate)) for rate in (1.0, 4.0))
    np.testing.assert_array_equal(slow.prompt_tokens, fast.prompt_tokens)
    np.testing.assert_allclose(slow.arrival_ns, 4 * fast.arrival_ns, atol=4)


def test_more_requests_begin_with_the_same() -> None:
    few, many = (a_table(a_client("a"), a_client("b", rate_per_s=7.0), requests=n) for n in (100, 1_000))
    for name in ("arrival_ns", "prompt_tokens", "client"):
        np.testing.assert_array_equal(getattr(few, name), getattr(many, name)[:100])


def test_lengths_of_prompt_and_output_and_gaps_are_unrelated() -> None:
    law = Lognormal(mean=200.0, p99=900.0)
    table = a_table(a_client(output_tokens=law), a_client("other", output_tokens=law), requests=40_000)
    mine = [row[1:] for row in rows_of(table, "chat")[1:3]] + [np.diff(rows_of(table, "chat")[0])]
    other = [row[1 : len(mine[0]) + 1] for row in rows_of(table, "other")[1:3]]
    shortest = min(len(row) for row in (*mine, *other))
    correlation = np.corrcoef([row[:shortest] for row in (*mine, *other)]) - np.eye(5)
    assert np.abs(correlation).max() < 4 / np.sqrt(shortest)


def test_requests_counts_all_clients_together_in_order_of_arrival() -> None:
    table = a_table(a_client("a"), a_client("b", rate_per_s=6.0), requests=4_000)
    assert len(table) == 4_000
    assert np.all(np.diff(table.arrival_ns) >= 0)
    assert np.sum(table.client == 1) == pytest.approx(3_000, abs=4 * np.sqrt(4_000 * 0.75 * 0.25))


def test_plain_clients_have_private_prompts() -> None:
    assert len(a_table().segment_offsets) == 1


def test_a_profile_shapes_the_rate() -> None:
    busy_half = Steps(step_s=100.0, relative=(0.0, 2.0))
    client = a_client(arrivals=Constant(), rate_per_s=10.0, rate_profile=busy_half)
    arrival_s = a_table(client, requests=3_000).arrival_ns / 1e9
    assert np.all((arrival_s % 200 >= 100) | (arrival_s % 200 < 1e-6))
    assert arrival_s[1_998] == pytest.approx(200, abs=0.06)
    assert arrival_s[-1] == pytest.approx(350, abs=0.06)


def test_a_shared_prefix_begins_every_prompt_and_nothing_else_is_shared() -> None:
    table = a_table(a_client(shared_prefix_tokens=30, prompt_tokens=Fixed(tokens=5)), requests=50)
    prompts = [prompt_of(table, row) for row in range(50)]
    assert {len(prompt) for prompt in prompts} == {35}
    assert len({tuple(prompt[:30]) for prompt in prompts}) == 1
    own = [token for prompt in prompts for token in prompt[30:]]
    assert len(set(own)) == len(own)


def test_several_prefixes_are_used_evenly() -> None:
    table = a_table(a_client(shared_prefix_tokens=30, shared_prefixes=4), requests=4_000)
    prefixes = table.segment_stream[table.segment_offsets[:-1]]
    np.testing.assert_allclose(np.bincount(prefixes), 1_000, atol=4 * np.sqrt(4_000 * 0.25 * 0.75))


def test_a_turns_prompt_is_the_conversation_so_far_and_its_own_text() -> None:
    client = a_client(
        turns=Uniform(low=1, high=5),
        prompt_tokens=Uniform(low=1, high=9),
        output_tokens=Uniform(low=1, high=9),
        max_tokens=6,
        shared_prefix_tokens=3,
    )
    table = a_table(client, a_client("other", rate_per_s=5.0), requests=300)
    followers = np.flatnonzero(table.after >= 0)
    assert len(followers) > 20
    for row in followers:
        before = table.after[row]
        assert before < row
        assert table.session[before] == table.session[row] >= 0
        earlier, prompt = prompt_of(table, before), prompt_of(table, row)
        answer = [(-1 - before, index) for index in range(min(table.output_tokens[before], 6))]
        assert prompt[: len(earlier) + len(answer)] == earlier + answer
        own = prompt[len(earlier) + len(answer) :]
        assert own
        assert len(prompt) == table.prompt_tokens[row] == len(set(prompt))


def test_turns_of_a_session_come_with_its_start_and_think_in_between() -> None:
    table = a_table(a_client(turns=Fixed(tokens=4), think_s=5.0), requests=8_000)
    follows = table.after >= 0
    assert np.mean(follows) == 0.75
    np.testing.assert_array_equal(table.arrival_ns[follows], table.arrival_ns[table.after[follows]])
    assert not table.think_ns[~follows].any()
    think_s = table.think_ns[follows] / 1e9
    assert think_s.mean() == pytest.approx(5, abs=4 * 5 / np.sqrt(len(think_s)))


def test_a_closed_loop_is_one_chain_of_requests_for_each_user() -> None:
    table = a_table(a_client(users=8, requests_per_user=50), requests=None)
    assert len(table) == 400
    assert not table.arrival_ns.any()
    np.testing.assert_array_equal(table.after, np.where(np.arange(400) < 8, -1, np.arange(400) - 8))
    assert len(table.segment_offsets) == 1


def test_a_closed_loop_of_sessions_forgets_the_conversation_when_it_ends() -> None:
    client = a_client(
        users=3,
        requests_per_user=7,
        turns=Fixed(tokens=3),
        prompt_tokens=Fixed(tokens=10),
        output_tokens=Fixed(tokens=1),
    )
    table = a_table(client, requests=None)
    chains: dict[int, list[int]] = {}
    for row, before in enumerate(table.after.tolist()):
        chains[row] = [*chains.pop(before, []), row]
    assert [table.prompt_tokens[chain].tolist() for chain in chains.values()] == [[10, 21, 32] * 2 + [10]] * 3
    for chain in chains.values():
        assert len({table.session[row] for row in chain}) == 3


def test_a_cut_workload_has_every_request_that_another_waits_for() -> None:
    for requests in range(1, 40):
        table = a_table(a_client(turns=Fixed(tokens=3)), a_client("b", users=2, requests_per_user=4), requests=requests)
        assert len(table) == requests
        assert np.all(table.after < np.arange(requests))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"rate_per_s": -1.0}, "rate_per_s"),
        ({"rate_per_s": 0.0}, "rate_per_s"),
        ({"rate_per_s": None}, "either rate_per_s"),
        ({"users": 3}, "go together"),
        ({"users": 3, "requests_per_user": 2, "rate_per_s": 1.0}, "either rate_per_s"),
        ({"requests_per_user": 2}, "go together"),
        ({"prompt_tokens": {"kind": "normal"}}, "prompt_tokens"),
        ({"rate": 3.0}, "rate"),
        ({"share": 3.0}, "either rate_per_s or share"),
        ({"output_tokens": None}, "give both prompt_tokens and output_tokens, or lengths_of"),
        ({"output_tokens": None, "prompt_tokens": None}, "are missing"),
        ({"lengths_of": {"path": "x.csv"}}, "or lengths_of"),
        ({"length_correlation": 1.0}, "length_correlation"),
        ({"max_concurrency": 3, "turns": Fixed(tokens=2)}, "open loop of sessions of one turn"),
        ({"max_concurrency": 3, "users": 2, "requests_per_user": 3}, "open loop of sessions of one turn"),
    ],
)
def test_impossible_clients_are_refused(fields: dict[str, object], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        a_client(**fields)


def test_no_clients_clients_of_one_name_and_endless_workloads_are_refused() -> None:
    with pytest.raises(ValidationError, match="needs at least one"):
        ClientsWorkload(clients=(), requests=5)
    with pytest.raises(ValidationError, match="chat, chat; each needs a name of its own"):
        a_table(a_client(), a_client())
    with pytest.raises(ValidationError, match="needs requests or duration_s"):
        a_table(requests=None)


def test_a_workload_without_requests_is_refused() -> None:
    with pytest.raises(ScenarioError, match="no request arrives within duration_s = 1e-09"):
        a_table(requests=None, duration_s=1e-9)


def test_a_law_of_ones_own_is_taken_from_python() -> None:
    class Alternating:
        def gaps(self, count: int, rng: np.random.Generator) -> np.ndarray:
            return np.resize([0.5, 1.5], count)

        def draw(self, count: int, rng: np.random.Generator) -> np.ndarray:
            return np.resize([3, 30], count)

    table = a_table(a_client(rate_per_s=1.0, arrivals=Alternating(), prompt_tokens=Alternating()), requests=4)
    assert (table.arrival_ns / 1e9).tolist() == [0.5, 2.0, 2.5, 4.0]
    assert table.prompt_tokens.tolist() == [3, 30, 3, 30]


class TestReasoning:
    def test_thinking_is_generated_but_does_not_come_back(self) -> None:
        fields = {"prompt_tokens": Fixed(tokens=10), "output_tokens": Fixed(tokens=5), "turns": Fixed(tokens=3)}
        table = a_table(a_client(reasoning_tokens=Fixed(tokens=100), **fields), requests=30)
        assert set(table.output_tokens) == {105}
        turns = np.flatnonzero(table.session == table.session[0])
        assert table.prompt_tokens[turns].tolist() == [10, 25, 40]
        assert prompt_of(table, turns[1])[10:15] == [(-1 - turns[0], 100 + index) for index in range(5)]

    def test_a_limit_that_cuts_the_thinking_leaves_a_token(self) -> None:
        fields = {"prompt_tokens": Fixed(tokens=10), "output_tokens": Fixed(tokens=5), "turns": Fixed(tokens=2)}
        table = a_table(a_client(reasoning_tokens=Fixed(tokens=100), max_tokens=60, **fields), requests=20)
        follower = int(np.flatnonzero(table.after >= 0)[0])
        assert prompt_of(table, follower)[10:11] == [(-1 - table.after[follower], 59)]


def test_popular_prefixes_are_used_by_zipfs_law() -> None:
    from scipy.stats import chisquare

    table = a_table(a_client(shared_prefix_tokens=30, shared_prefixes=20, shared_prefix_zipf=1.3), requests=20_000)
    counts = np.bincount(table.segment_stream[table.segment_offsets[:-1]], minlength=20)
    weights = np.arange(1, 21) ** -1.3
    assert chisquare(counts, 20_000 * weights / weights.sum()).pvalue > 1e-3


class TestAgents:
    def test_the_first_prompt_has_a_law_of_its_own(self) -> None:
        client = a_client(
            first_prompt_tokens=Fixed(tokens=1_000),
            prompt_tokens=Fixed(tokens=7),
            output_tokens=Fixed(tokens=3),
            turns=Fixed(tokens=3),
        )
        table = a_table(client, requests=30)
        turns = np.flatnonzero(table.session == table.session[0])
        assert table.prompt_tokens[turns].tolist() == [1_000, 1_010, 1_020]

    @pytest.mark.parametrize("cv", [0.0, 0.5, 2.0])
    def test_tools_take_their_time(self, cv: float) -> None:
        table = a_table(a_client(turns=Fixed(tokens=5), think_s=4.0, think_cv=cv), requests=20_000)
        think_s = table.think_ns[table.after >= 0] / 1e9
        assert think_s.mean() == pytest.approx(4, abs=4 * 4 * cv / np.sqrt(len(think_s)) + 1e-9)
        assert think_s.std() == pytest.approx(4 * cv, rel=0.1, abs=1e-9)


def test_correlated_lengths_keep_their_laws_and_leave_arrivals() -> None:
    from scipy.stats import spearmanr

    fields = {"output_tokens": Lognormal(mean=100.0, p99=700.0)}
    apart, together = (a_table(a_client(**fields, length_correlation=rho), requests=10_000) for rho in (0.0, 0.6))
    np.testing.assert_array_equal(apart.arrival_ns, together.arrival_ns)
    assert spearmanr(together.prompt_tokens, together.output_tokens).statistic == pytest.approx(0.6, abs=0.04)
    for name in ("prompt_tokens", "output_tokens"):
        assert np.median(getattr(together, name)) == pytest.approx(np.median(getattr(apart, name)), rel=0.05)


def test_resampled_rows_keep_pairs_together(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text("arrival_s,prompt_tokens,output_tokens\n0,10,1\n1,20,2\n2,30,3\n")
    client = Client(name="again", rate_per_s=2.0, lengths_of=TraceRows(path=Path("trace.csv")))
    table = a_table(client.located(tmp_path), requests=3_000)
    np.testing.assert_array_equal(table.prompt_tokens, 10 * table.output_tokens)
    np.testing.assert_allclose(np.bincount(table.output_tokens)[1:], 1_000, atol=4 * np.sqrt(3_000 * 2 / 9))
    with pytest.raises(ValueError, match="there is no such file"):
        client.located(tmp_path / "elsewhere")


def test_shares_divide_the_workloads_rate() -> None:
    clients = (
        a_client("small", rate_per_s=None, share=1.0),
        a_client("large", rate_per_s=None, share=3.0),
        a_client("own", rate_per_s=4.0),
    )
    table = a_table(*clients, requests=None, duration_s=1_000.0, rate_per_s=16.0)
    counts = np.bincount(table.client)
    np.testing.assert_allclose(counts, [4_000, 12_000, 4_000], atol=5 * np.sqrt(12_000))
    with pytest.raises(
        ValidationError, match="share of small is a part of the workload's rate_per_s, which is missing"
    ):
        a_table(clients[0])
    with pytest.raises(ValidationError, match="no client has one"):
        a_table(a_client(), rate_per_s=5.0)


def test_a_limit_in_flight_is_a_chain_for_each_worker() -> None:
    table = a_table(a_client(max_concurrency=4), requests=50)
    np.testing.assert_array_equal(table.after, np.where(np.arange(50) < 4, -1, np.arange(50) - 4))
    np.testing.assert_array_equal(table.arrival_ns, a_table(a_client(), requests=50).arrival_ns)
    assert not table.think_ns.any()


def test_a_million_requests_with_sessions_and_prefixes_take_less_than_five_seconds() -> None:
    client = a_client(turns=Uniform(low=1, high=5), think_s=5.0, shared_prefix_tokens=100, shared_prefixes=10)
    workload = ClientsWorkload(clients=(client,), requests=200_000)
    workload.generate(0)
    began = process_time()
    workload.generate(1)
    assert process_time() - began < 1.0


def test_a_million_plain_requests_take_about_a_second() -> None:
    workload = ClientsWorkload(clients=(a_client(),), requests=200_000)
    workload.generate(0)
    began = process_time()
    workload.generate(1)
    assert process_time() - began < 0.4


def test_patience_is_a_clients_own_and_costs_the_others_nothing() -> None:
    assert a_table(a_client()).timeout_ns is None
    assert a_table(a_client()).backoff_ns is None
    patient, impatient = a_client("patient"), a_client("impatient", timeout_s=2.5, retries=2)
    table = a_table(patient, impatient)
    assert table.timeout_ns is not None
    assert table.backoff_ns is not None
    mine = table.client == 1
    assert np.unique(table.timeout_ns[mine]).tolist() == [2_500_000_000]
    assert np.unique(table.timeout_ns[~mine]).tolist() == [-1]
    assert np.unique(table.backoff_ns[~mine]).tolist() == [-1]
    alone = a_table(a_client("impatient", timeout_s=2.5))
    assert np.array_equal(table.arrival_ns[mine], alone.arrival_ns[: mine.sum()])


def test_waits_between_retries_double_and_are_up_to_a_quarter_shorter() -> None:
    table = a_table(a_client(timeout_s=1.0, retries=7, retry_backoff_s=0.5), requests=2_000)
    assert table.backoff_ns is not None
    waits_s = table.backoff_ns / 1e9
    longest_s = np.array([0.5, 1, 2, 4, 8, 8, 8])
    np.testing.assert_allclose(waits_s.max(axis=0), longest_s, rtol=0.01)
    np.testing.assert_allclose(waits_s.min(axis=0), 0.75 * longest_s, rtol=0.01)
    np.testing.assert_allclose(waits_s.mean(axis=0), 0.875 * longest_s, rtol=0.01)
    assert abs(np.corrcoef(waits_s[:, 0], waits_s[:, 1])[0, 1]) < 0.1


def test_retries_need_a_timeout() -> None:
    with pytest.raises(ValueError, match="retries follow a timeout_s"):
        a_client(retries=2)
