"""The request table: checked on the way in, and the same requests however it is put together."""

import numpy as np
import pytest

from llmsim.errors import ScenarioError
from llmsim.workload import RequestTable
from llmsim.workload.lengths import Fixed, Uniform
from tests.workload.factories import a_client, a_table, prompt_of


def build(**fields: object) -> RequestTable:
    columns = {"arrival_s": [0.0, 1.0], "prompt_tokens": [10, 20], "output_tokens": 5, **fields}
    return RequestTable.build(**columns)  # type: ignore[arg-type]


def test_single_values_hold_for_every_row() -> None:
    table = build(max_tokens=7)
    assert table.output_tokens.tolist() == [5, 5]
    assert table.max_tokens.tolist() == [7, 7]
    assert table.after.tolist() == table.session.tolist() == [-1, -1]


def test_every_array_is_int64_and_owns_its_values() -> None:
    table = build(arrival_ns=np.array([0, 5]), priority=np.array([1.0, 2.0]))
    for name in ("arrival_ns", "prompt_tokens", "output_tokens", "priority", "client", "after", "think_ns"):
        column = getattr(table, name)
        assert column.dtype == np.int64
        assert column.shape == (2,)
        assert column.flags.owndata


def test_rows_are_sorted_by_arrival_and_links_and_outputs_follow_their_rows() -> None:
    # As given: row 0 comes last; row 2 answers row 1 and its prompt holds what row 1 generated.
    segments = tuple(np.array(values) for values in ([0, 1, 2, 4], [0, 1, 1, -2], [0, 0, 0, 0], [3, 4, 4, 2]))
    table = RequestTable.build(
        arrival_s=[9.0, 1.0, 1.0],
        prompt_tokens=[3, 4, 6],
        output_tokens=2,
        after=[-1, -1, 1],
        segments=segments,  # type: ignore[arg-type]
    )
    assert table.prompt_tokens.tolist() == [4, 6, 3]
    assert table.after.tolist() == [-1, 0, -1]
    assert prompt_of(table, 1) == [(1, 0), (1, 1), (1, 2), (1, 3), (-1, 0), (-1, 1)]
    assert prompt_of(table, 2) == [(0, 0), (0, 1), (0, 2)]


def test_rows_of_one_instant_keep_their_order() -> None:
    table = build(arrival_s=[1.0, 0.0, 1.0, 0.0], prompt_tokens=[1, 2, 3, 4])
    assert table.prompt_tokens.tolist() == [2, 4, 1, 3]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"prompt_tokens": [10, 0]}, "row 1: prompt_tokens is 0; allowed is 1 or more"),
        ({"output_tokens": [-3, 1]}, "row 0: output_tokens is -3"),
        ({"prompt_tokens": [10, 1.5]}, "row 1: prompt_tokens is 1.5; allowed is a whole number"),
        ({"arrival_s": [0.0, -1.0]}, "row 1: arrival_ns is -1000000000"),
        ({"arrival_s": [0.0, float("nan")]}, "row 1: arrival_ns is nan"),
        ({"max_tokens": 0}, "row 0: max_tokens is 0; allowed is -1, or 1 or more"),
        ({"think_ns": [0, -1]}, "row 1: think_ns is -1"),
        ({"client": [0, 1]}, "row 1: client is 1"),
        ({"after": [1, -1]}, "row 0: after is 1; allowed is an earlier row"),
        ({"after": [-1, 1]}, "row 1: after is 1"),
        ({"output_tokens": [1, 2, 3]}, "differ in length"),
    ],
)
def test_bad_values_are_named(fields: dict[str, object], message: str) -> None:
    with pytest.raises(ScenarioError, match=message):
        build(**fields)


def test_segments_that_do_not_make_up_the_prompt_are_refused() -> None:
    segments = tuple(np.array(values) for values in ([0, 1, 2], [0, 1], [0, 0], [10, 19]))
    with pytest.raises(ScenarioError, match="row 1: prompt_tokens is 20; allowed is 19, the sum"):
        build(segments=segments)


def test_a_successor_later_in_the_table_but_earlier_in_time_is_refused() -> None:
    with pytest.raises(ScenarioError, match="come after"):
        build(arrival_s=[5.0, 1.0], after=[-1, 0])


def test_merging_keeps_each_tables_requests_prompts_and_links() -> None:
    chat = a_table(a_client("chat", turns=Uniform(low=1, high=4), shared_prefix_tokens=9), requests=60)
    code = a_table(a_client("code", turns=Fixed(tokens=2), prompt_tokens=Fixed(tokens=20)), requests=60)
    plain = a_table(a_client("plain"), requests=60)
    merged = RequestTable.merge([chat, code, plain])
    assert merged.client_names == ("chat", "code", "plain")
    assert np.all(np.diff(merged.arrival_ns) >= 0)
    streams_of_clients = []
    for client, table in enumerate((chat, code, plain)):
        rows = np.flatnonzero(merged.client == client)
        assert merged.prompt_tokens[rows].tolist() == table.prompt_tokens.tolist()
        links = merged.after[rows]
        assert np.where(links < 0, -1, np.searchsorted(rows, links)).tolist() == table.after.tolist()
        prompts = [prompt_of(merged, row) for row in rows]
        own = [(stream, index) for prompt in prompts for stream, index in prompt]
        streams_of_clients.append({int(merged.client[-1 - s]) + 10**6 if s < 0 else s for s, _ in own})
        for row, prompt in enumerate(prompts):
            if table is not plain:
                assert same_tokens(prompt, prompt_of(table, row), rows)
    assert not streams_of_clients[0] & streams_of_clients[1]
    assert not streams_of_clients[2]
    assert not set(merged.session[merged.client == 0]) & set(merged.session[merged.client == 1]) - {-1}


def same_tokens(merged: list[tuple[int, int]], alone: list[tuple[int, int]], rows: np.ndarray) -> bool:
    """Whether a prompt is as before merging: indices, generated rows, and a constant shift of streams."""
    shifts = set()
    for (new, new_index), (old, old_index) in zip(merged, alone, strict=True):
        if new_index != old_index or (new < 0) != (old < 0) or (new < 0 and -1 - new != rows[-1 - old]):
            return False
        if new >= 0:
            shifts.add(new - old)
    return len(shifts) == 1


def test_patience_follows_its_rows_and_is_checked() -> None:
    table = build(arrival_s=[3.0, 1.0], timeout_ns=[7, -1], backoff_ns=np.array([[5, 6], [-1, -1]]))
    assert table.timeout_ns is not None
    assert table.backoff_ns is not None
    assert table.timeout_ns.tolist() == [-1, 7]
    assert table.backoff_ns.tolist() == [[-1, -1], [5, 6]]
    both = RequestTable.merge([table, build(arrival_s=[0.0, 2.0]), build(backoff_ns=np.array([[1], [2]]))])
    assert both.arrival_ns.tolist() == [0, 0, 1e9, 1e9, 2e9, 3e9]
    assert both.timeout_ns is not None
    assert both.backoff_ns is not None
    assert both.timeout_ns.tolist() == [-1, -1, -1, -1, -1, 7]
    assert both.backoff_ns.tolist() == [[-1, -1], [1, -1], [-1, -1], [2, -1], [-1, -1], [5, 6]]
    with pytest.raises(ScenarioError, match="row 1: timeout_ns is 0"):
        build(timeout_ns=[5, 0])
    with pytest.raises(ScenarioError, match="row 0: backoff_ns is"):
        build(backoff_ns=np.array([[-2], [5]]))
