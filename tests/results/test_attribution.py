"""Where the time went: evident records by hand, and drawn ones against a walk over every iteration."""

from dataclasses import replace

import numpy as np
import pytest

from llmsim.errors import ScenarioError, SimulationError
from llmsim.results.attribution import PARTS, attribute, what_binds
from llmsim.results.metrics import summarise
from llmsim.results.record import Columns, RunRecord
from tests.results.factories import (
    NAN,
    Row,
    a_preemption,
    a_record,
    a_request,
    an_iteration,
    some_facts,
    some_totals,
)


def in_ns(columns: Columns) -> dict[str, np.ndarray]:
    return {name: np.rint(columns[name] * 1e9).astype(np.int64) for name in (*PARTS, "e2e_s")}


def decodes(count: int) -> list[Row]:
    """Iterations of 0.1 s that decode."""
    return [an_iteration(i, start_s=i / 10, end_s=(i + 1) / 10) for i in range(count)]


def parts_of(record: RunRecord, decode_only_s: np.ndarray | None = None) -> dict[str, float]:
    """The parts of the only finished request that are not zero."""
    (row,) = zip(*(attribute(record, decode_only_s)[name] for name in PARTS), strict=True)
    return {name: round(float(value), 9) for name, value in zip(PARTS, row, strict=True) if value}


def test_story_by_hand() -> None:
    """Request 1 waits 0.05 s; 500 of the 501 tokens beside request 0's first decode are its prefill."""
    parts = attribute(a_record())
    assert parts["waiting_s"].tolist() == [0.0, 0.05]
    assert parts["prefill_s"].tolist() == [0.1, 0.1]
    assert parts["others_prefill_s"] == pytest.approx([0.1 * 500 / 501, 0.0])
    assert parts["decode_s"] == pytest.approx([0.02 + 0.1 / 501, 0.02])


def test_decode_only_durations_decide_the_split() -> None:
    parts = attribute(a_record(), decode_only_s=np.array([0.0, 0.03, 0.02]))
    assert parts["decode_s"] == pytest.approx([0.05, 0.02])
    assert parts["others_prefill_s"] == pytest.approx([0.07, 0.0])


def test_way_to_the_queue_is_the_frontends() -> None:
    request = a_request(arrival_s=0.02, queued_s=0.05, first_scheduled_s=0.1, first_token_s=0.2, finish_s=0.3)
    parts = parts_of(a_record(requests=[request], iterations=decodes(3)))
    assert parts == {"frontend_s": 0.03, "waiting_s": 0.05, "prefill_s": 0.1, "decode_s": 0.1}


def test_time_in_preemption_is_not_decode() -> None:
    record = a_record(
        requests=[a_request(finish_s=0.6)],
        iterations=decodes(6),
        preemptions=[a_preemption(preempted_s=0.2, caught_up_s=0.5)],
    )
    assert parts_of(record) == {"prefill_s": 0.1, "decode_s": 0.2, "preempted_s": 0.3}


def test_preemption_before_the_first_token_is_not_prefill() -> None:
    record = a_record(
        requests=[a_request(first_token_s=0.5, finish_s=0.6)],
        iterations=decodes(6),
        preemptions=[a_preemption(preempted_s=0.2, caught_up_s=0.5)],
    )
    assert parts_of(record) == {"prefill_s": 0.2, "preempted_s": 0.3, "decode_s": 0.1}


@pytest.mark.parametrize("caught_up_s", [0.5, NAN])
def test_second_preemption_before_catching_up_is_not_counted_twice(caught_up_s: float) -> None:
    record = a_record(
        requests=[a_request(finish_s=0.6)],
        iterations=decodes(6),
        preemptions=[
            a_preemption(preempted_s=0.3, caught_up_s=0.5),
            a_preemption(preempted_s=0.2, caught_up_s=caught_up_s),
        ],
    )
    assert parts_of(record) == {"prefill_s": 0.1, "decode_s": 0.2, "preempted_s": 0.3}


def test_overlapping_iterations_are_counted_once() -> None:
    """With two batches in flight the next iteration starts before the last one ends."""
    steps = [an_iteration(i, start_s=max(i - 1, 0) / 10, end_s=(i + 1) / 10) for i in range(4)]
    record = a_record(requests=[a_request(finish_s=0.4)], iterations=steps)
    assert parts_of(record) == {"prefill_s": 0.1, "decode_s": 0.3}


def test_iterations_that_overtake_each_other_are_ordered_by_their_ends() -> None:
    """In a pipeline a short decode that started later may be out before a long prefill."""
    steps = [
        an_iteration(0, start_s=0.0, end_s=0.1),
        an_iteration(1, start_s=0.1, end_s=0.4, prefill_tokens=500, decode_tokens=0),
        an_iteration(2, start_s=0.15, end_s=0.2),
    ]
    record = a_record(requests=[a_request(finish_s=0.4)], iterations=steps)
    assert parts_of(record) == {"prefill_s": 0.1, "decode_s": 0.1, "others_prefill_s": 0.2}


def test_unfinished_requests_have_no_attribution() -> None:
    record = a_record(
        requests=[a_request(4, outcome="in_flight", finish_s=NAN), a_request(5)],
        iterations=decodes(2),
        preemptions=[a_preemption(4, caught_up_s=NAN)],
    )
    assert attribute(record)["request_id"].tolist() == [5]


def a_drawn_record(seed: int) -> RunRecord:
    """Two replicas, iterations of drawn lengths and batches; every time of a request is an edge."""
    random = np.random.default_rng(seed)
    iterations, requests, preemptions = [], [], []
    numbers = random.permutation(100).tolist()
    for replica in range(2):
        edges = np.cumsum(random.integers(1, 10**8, 61)) / 1e9
        for i in range(60):
            batch = {
                "prefill_tokens": int(random.integers(0, 3) * 300),
                "decode_tokens": int(random.integers(0, 9)),
            }
            iterations.append(an_iteration(i, replica=replica, start_s=edges[i], end_s=edges[i + 1], **batch))
        for _ in range(40):
            arrival, queued, scheduled, first, finish = np.sort(random.integers(0, 61, 5))
            moments = {"arrival_s": arrival, "queued_s": queued, "first_scheduled_s": scheduled}
            moments |= {"first_token_s": first, "finish_s": finish}
            times = {name: float(edges[index]) for name, index in moments.items()}
            requests.append(a_request(numbers[len(requests)], replica=replica, **times))
            cuts = np.sort(random.choice(np.arange(scheduled, finish + 1), min(4, finish - scheduled + 1), False))
            for start, end in zip(cuts[::2], cuts[1::2], strict=False):
                stall = {"preempted_s": float(edges[start]), "caught_up_s": float(edges[end])}
                preemptions.append(a_preemption(requests[-1]["request_id"], replica=replica, **stall))
    random.shuffle(preemptions)
    return a_record(requests, iterations, preemptions)


def walk(record: RunRecord, request: int) -> tuple[int, int, int, int]:
    """Prefill, preempted, decode and others' prefill of a request (ns), iteration by iteration."""
    row = {name: column[request] for name, column in record.requests.items()}
    mine = record.preemptions["request_id"] == row["request_id"]
    stalls = list(zip(record.preemptions["preempted_s"][mine], record.preemptions["caught_up_s"][mine], strict=True))
    prefill = preempted = decode = others = 0
    for i in np.flatnonzero(record.iterations["replica"] == row["replica"]):
        step = {name: column[i] for name, column in record.iterations.items()}
        length = round(step["end_s"] * 1e9) - round(step["start_s"] * 1e9)
        if not row["first_scheduled_s"] <= step["start_s"] < row["finish_s"]:
            continue
        if any(start <= step["start_s"] < end for start, end in stalls):
            preempted += length
        elif step["start_s"] < row["first_token_s"]:
            prefill += length
        else:
            tokens = max(step["prefill_tokens"] + step["decode_tokens"], 1)
            share = round(length * (step["prefill_tokens"] / tokens))
            others, decode = others + share, decode + length - share
    return prefill, preempted, decode, others


@pytest.mark.parametrize("seed", range(5))
def test_drawn_runs_agree_with_a_walk_and_add_up_to_the_nanosecond(seed: int) -> None:
    record = a_drawn_record(seed)
    parts = in_ns(attribute(record))
    assert np.array_equal(sum(parts[name] for name in PARTS), parts["e2e_s"])
    found = zip(*(parts[f"{name}_s"] for name in ("prefill", "preempted", "decode", "others_prefill")), strict=True)
    assert list(found) == [walk(record, i) for i in range(len(record.requests["request_id"]))]


def test_parts_that_do_not_add_up_are_an_error() -> None:
    """A finish after the replica's last iteration: no iteration explains that time."""
    record = a_record(requests=[a_request(3, finish_s=0.9)], iterations=decodes(2))
    with pytest.raises(SimulationError, match="request 3"):
        attribute(record)


def test_record_without_iterations_cannot_be_attributed() -> None:
    with pytest.raises(ScenarioError, match='run\\.record = "requests"'):
        attribute(a_record(facts=some_facts(record="requests")))


def binds(record: RunRecord) -> str:
    return what_binds(record, summarise(record))


BUSY_S = {"compute": 0.1, "hbm": 0.355, "link": 0.0, "overhead": 0.02, "idle": 0.025}


def test_sentence_names_the_resource_and_the_batch() -> None:
    """Batch 2 for 0.1 s and 4 for 0.3 s; an iteration without decodes has no batch."""
    steps = [
        an_iteration(0, decode_tokens=2),
        an_iteration(1, start_s=0.1, end_s=0.4, decode_tokens=4),
        an_iteration(2, start_s=0.4, end_s=0.5, decode_tokens=0, prefill_tokens=9),
    ]
    record = a_record(iterations=steps, totals=some_totals(bound_s=BUSY_S, waiting_mean=0.0))
    assert binds(record) == "HBM bandwidth: 71 % of replica time, decode at mean batch 3.5."


def test_sentence_says_why_requests_wait() -> None:
    steps = [
        an_iteration(0, waiting=3, stopped_by="slots"),
        an_iteration(1, start_s=0.1, end_s=0.4, waiting=2, stopped_by="kv"),
        an_iteration(2, start_s=0.4, end_s=0.9, waiting=0, stopped_by="empty"),
    ]
    totals = some_totals(bound_s=BUSY_S, running_mean=8.0, waiting_mean=41.0)
    sentence = binds(a_record(iterations=steps, totals=totals))
    assert sentence.endswith(
        "41 requests wait on average because the KV blocks are taken (75 % of the time with a queue)."
    )


def test_sentence_of_a_run_that_idles() -> None:
    assert binds(a_record()).startswith("Idle: 56 % of replica time, compute takes 91 % of the rest")


def test_sentence_without_iterations_says_what_is_known() -> None:
    full = a_record(totals=some_totals(bound_s=BUSY_S, waiting_mean=5.0))
    thin = replace(full, iterations={name: column[:0] for name, column in full.iterations.items()})
    assert binds(thin) == "HBM bandwidth: 71 % of replica time, 5 requests wait on average."


def test_sentence_of_a_run_without_work() -> None:
    assert binds(a_record(requests=[], iterations=[], totals=some_totals(bound_s={}))).startswith("Nothing ran")
