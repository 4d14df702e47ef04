"""Traces are replayed exactly, in every known format, and what is wrong in a file is named."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from pydantic import ValidationError

from llmsim.errors import ScenarioError
from llmsim.workload import RequestTable, TraceWorkload
from tests.workload.factories import prompt_of

Replay = Callable[..., RequestTable]
AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
FIRST = "2023-11-16 18:15:46.6805900,374,44\n"
SECOND = "2023-11-16 18:15:50.9951691,396,109"


@pytest.fixture
def replay(tmp_path: Path) -> Replay:
    """Write a text to a file and replay it."""

    def write_and_replay(text: str, seed: int = 0, **fields: object) -> RequestTable:
        path = tmp_path / "trace.file"
        path.write_text(text, encoding="utf-8")
        return TraceWorkload(path=path, **fields).generate(seed)  # type: ignore[arg-type]

    return write_and_replay


def test_azure_times_are_exact_to_the_last_digit(replay: Replay) -> None:
    table = replay(AZURE + FIRST + SECOND)
    assert table.arrival_ns.tolist() == [0, 4_314_579_100]
    assert table.prompt_tokens.tolist() == [374, 396]
    assert table.output_tokens.tolist() == [44, 109]
    assert table.max_tokens.tolist() == [-1, -1]


@pytest.mark.parametrize(
    ("timestamp", "after_ns"),
    [
        ("2023-11-16 18:15:46.6805901", 100),
        ("2023-11-16 18:15:47", 319_410_000),
        ("2023-11-16 18:15:46.680590001", 1),
        ("2024-03-01 18:15:46.6805900", (14 + 31 + 31 + 29 + 1) * 86_400 * 10**9),
    ],
)
def test_azure_timestamps_have_any_number_of_digits(replay: Replay, timestamp: str, after_ns: int) -> None:
    assert replay(AZURE + FIRST + f"{timestamp},1,1\n").arrival_ns[1] == after_ns


@pytest.mark.parametrize("zoned", ["18:15:46.6805901+00:00", "18:15:46.6805901Z", "20:15:46.6805901+02:00"])
def test_azure_timestamps_with_different_zones_are_one_clock(replay: Replay, zoned: str) -> None:
    table = replay(f"{AZURE}2024-05-10 18:15:46.6805900+00:00,1,1\n2024-05-10T{zoned},1,1\n")
    assert table.arrival_ns.tolist() == [0, 100]


@pytest.mark.parametrize("rows", [("", "Z", "a"), ("+00:00", "", "no")])
def test_times_with_and_without_a_zone_do_not_mix(replay: Replay, rows: tuple[str, str, str]) -> None:
    first, second, has = rows
    with pytest.raises(ScenarioError, match=f"line 3: TIMESTAMP '.*' has {has} time zone, unlike the rows before it"):
        replay(f"{AZURE}2024-05-10 18:15:46{first},1,1\n2024-05-10 18:15:46{second},1,1\n")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "first line is empty"),
        (AZURE, "the trace has no rows"),
        (
            "TIMESTAMP,ContextTokens\n" + FIRST,
            "missing column GeneratedTokens; found: TIMESTAMP, ContextTokens",
        ),
        ("time,in,out\n1,2,3\n", "no known trace format begins with 'time,in,out'(.|\n)*azure: TIMESTAMP"),
        (
            AZURE + FIRST + "2023-11-16 18:15:47,abc,1",
            r"line 3: ContextTokens 'abc' is not a whole number >= 1",
        ),
        (AZURE + FIRST + "2023-11-16 18:15:47,5,1.5", r"line 3: GeneratedTokens '1.5' is not a whole number"),
        (AZURE + FIRST + "2023-11-16 18:15:47,5,", r"line 3: GeneratedTokens '' is not"),
        (AZURE + FIRST + "\n2023-11-16 18:15:47,-5,1", r"line 4: ContextTokens '-5' is not"),
        (AZURE + "2023-11-16 18:15:47,5,0", r"line 2: GeneratedTokens '0' is not .*on_bad_rows = \"skip\""),
        (AZURE + "2023-11-16 18:15:47,0,5", r"line 2: ContextTokens '0' is not"),
        (AZURE + f"2023-11-16 18:15:47,5,{10**19}", r"line 2: GeneratedTokens '10+' is too large"),
        (
            AZURE + "16/11/2023 18:15,5,5",
            r"line 2: TIMESTAMP '16/11/2023 18:15' is not a time like 2023-11-16",
        ),
        (AZURE + "2023-13-16 18:15:47,5,5", r"line 2: TIMESTAMP '2023-13-16 18:15:47' is not a time"),
        (AZURE + FIRST + "2023-11-16 18:15:47,5", "line 3: has 2 fields, the header has 3"),
        ('{"timestamp": 0, "input_length": 5}\n', "line 1: output_length None is not a whole number >= 1"),
        ('{"timestamp": 0, "input_length": 5, "output_length": 1', "line 1: is not JSON"),
        (
            '{"timestamp": "x", "input_length": 5, "output_length": 1}',
            "line 1: timestamp 'x' is not a number of milliseconds",
        ),
        (
            '{"timestamp": 0, "input_length": 513, "output_length": 1, "hash_ids": [4]}',
            "line 1: hash_ids has 1 blocks; input_length 513 needs 2 of 512",
        ),
        (
            "arrival_s,prompt_tokens,output_tokens\nsoon,1,1\n",
            "line 2: arrival_s 'soon' is not a number of seconds",
        ),
        ("arrival_s,prompt_tokens,output_tokens\nnan,1,1\n", "line 2: arrival_s 'nan' is not a number"),
        ("arrival_s,prompt_tokens,output_tokens\n1e99,1,1\n", "line 2: arrival_s '1e99' is too large"),
    ],
)
def test_what_is_wrong_in_a_file_is_named(replay: Replay, text: str, message: str) -> None:
    with pytest.raises(ScenarioError, match=message) as caught:
        replay(text)
    assert "trace.file" in str(caught.value)


def test_bad_rows_are_skipped_and_counted_on_request(replay: Replay) -> None:
    rows = f"x,1,1\n{FIRST}2023-11-16 18:15:47,5,0\n{SECOND}"
    with pytest.warns(UserWarning, match=r"2 bad rows skipped, 2 kept; the first: .*line 2: TIMESTAMP 'x'"):
        table = replay(AZURE + rows, on_bad_rows="skip")
    assert table.prompt_tokens.tolist() == [374, 396]


def test_a_file_of_bad_rows_only_is_an_error_even_when_they_are_skipped(replay: Replay) -> None:
    with pytest.raises(ScenarioError, match="line 2: TIMESTAMP 'x'"):
        replay(AZURE + "x,1,1\n", on_bad_rows="skip")


def test_unsorted_rows_are_sorted_stably_and_noted(replay: Replay) -> None:
    later = "2023-11-16 18:15:50.9951691"
    with pytest.warns(UserWarning, match="1 rows are earlier than the row before; sorted by arrival"):
        table = replay(f"{AZURE}{later},1,1\n{later},2,1\n{FIRST}{later},3,1\n", timestamp_resolution_s=0)
    assert table.prompt_tokens.tolist() == [374, 1, 2, 3]
    assert table.arrival_ns.tolist() == [0, 4_314_579_100, 4_314_579_100, 4_314_579_100]


def test_the_first_rows_are_read_alone(replay: Replay) -> None:
    assert len(replay(AZURE + FIRST + SECOND + "\nnever,read,this", requests=2)) == 2


def test_a_scale_of_two_replays_twice_as_fast(replay: Replay) -> None:
    assert replay(AZURE + FIRST + SECOND, rate_scale=2.0).arrival_ns.tolist() == [0, 2_157_289_550]


def test_windows_line_ends_byte_order_marks_quotes_and_further_columns_are_no_fault(replay: Replay) -> None:
    text = '\ufeff"TIMESTAMP","NumImages", "ContextTokens","GeneratedTokens"\r\n2023-11-16 18:15:47,3,5,6\r\n'
    table = replay(text.replace(', "', ',"'))
    assert (table.prompt_tokens.tolist(), table.output_tokens.tolist()) == ([5], [6])


def test_burstgpt_failures_are_refused_or_skipped(replay: Replay) -> None:
    text = (
        "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
        "5,,3,ChatGPT,472,18,490,API log\n6,,1,GPT-4,30,0,30,API log\n"
        "45,88,12,GPT-4,1087,230,1317,Conversation log\n"
    )
    with pytest.raises(ScenarioError, match="line 3: Response tokens '0'"):
        replay(text)
    with pytest.warns(UserWarning, match="1 bad rows skipped"):
        table = replay(text, on_bad_rows="skip")
    assert table.arrival_ns.tolist() == [0, 40 * 10**9]
    assert table.output_tokens.tolist() == [18, 230]


def test_vidur_traces_are_read(replay: Replay) -> None:
    table = replay("arrived_at,num_prefill_tokens,num_decode_tokens\n0.1,374,44\n4.3,396,109\n")
    assert table.arrival_ns.tolist() == [0, 4_200_000_000]
    assert table.output_tokens.tolist() == [44, 109]


def test_ones_own_trace_may_limit_and_rank_requests_and_have_any_clock(replay: Replay) -> None:
    table = replay(
        "arrival_s,prompt_tokens,output_tokens,priority,max_tokens\n"
        "1700000000.123456789,10,5,0,-1\n1700000000.123456790,20,6,-2,100\n"
    )
    assert table.arrival_ns.tolist() == [0, 1]
    assert table.priority.tolist() == [0, -2]
    assert table.max_tokens.tolist() == [-1, 100]


def test_mooncake_hashes_are_shared_prefixes_of_512_tokens(replay: Replay) -> None:
    table = replay(
        '{"timestamp": 0, "input_length": 1300, "output_length": 52, "hash_ids": [0, 1, 2]}\n'
        '{"timestamp": 1500, "input_length": 1024, "output_length": 26, "hash_ids": [0, 7]}\n'
        '{"timestamp": 1600, "input_length": 30, "output_length": 26}\n'
    )
    assert table.arrival_ns.tolist() == [0, 1_500_000_000, 1_600_000_000]
    first, second = set(prompt_of(table, 0)), set(prompt_of(table, 1))
    assert (len(first), len(second), len(first & second)) == (1300, 1024, 512)
    assert prompt_of(table, 0)[:512] == prompt_of(table, 1)[:512]
    assert prompt_of(table, 2) == []


def test_arrivals_on_a_coarse_grid_are_spread_over_its_step(replay: Replay) -> None:
    rows = "".join(f"{3 * (row // 100)},{row + 1},1\n" for row in range(1_000))
    text = "arrival_s,prompt_tokens,output_tokens\n" + rows
    table, other = replay(text), replay(text, seed=1)
    assert table.prompt_tokens.tolist() == list(range(1, 1_001))
    assert len(np.unique(table.arrival_ns)) == 1_000
    # The replay counts from the first arrival, on average 3 / 101 s after its stamp.
    after_stamp_s = table.arrival_ns / 1e9 - 3 * (np.arange(1_000) // 100)
    assert np.all((after_stamp_s > -0.3) & (after_stamp_s < 3))
    assert after_stamp_s.mean() == pytest.approx(1.5 - 3 / 101, abs=4 * 3 / np.sqrt(12 * 1_000))
    assert not np.array_equal(table.arrival_ns, other.arrival_ns)
    assert len(np.unique(replay(text, timestamp_resolution_s=0).arrival_ns)) == 10


def test_a_few_ties_are_left_alone(replay: Replay) -> None:
    text = "arrival_s,prompt_tokens,output_tokens\n0,1,1\n0,1,1\n1,1,1\n2,1,1\n3,1,1\n"
    assert replay(text).arrival_ns.tolist() == [0, 0, 10**9, 2 * 10**9, 3 * 10**9]


def test_an_absent_file_a_folder_and_a_binary_file_are_named(tmp_path: Path) -> None:
    binary = tmp_path / "binary.csv"
    binary.write_bytes(b"\xff\xfe\x00\x01")
    for path, message in (
        (tmp_path / "absent.csv", "absent.csv: the trace cannot be read: No such file"),
        (tmp_path, "cannot be read: Is a directory"),
        (binary, "binary.csv: the trace is not a text file in UTF-8"),
    ):
        with pytest.raises(ScenarioError, match=message):
            TraceWorkload(path=path).generate(0)


def test_unknown_formats_and_scales_are_refused() -> None:
    with pytest.raises(ValidationError, match="unknown format 'azur'; allowed: auto, azure, burstgpt"):
        TraceWorkload(path=Path("x"), format="azur")
    with pytest.raises(ValidationError, match="rate_scale"):
        TraceWorkload(path=Path("x"), rate_scale=0.0)


def test_the_azure_conversation_trace_is_read_whole(shared_data: Path) -> None:
    table = TraceWorkload(path=shared_data / "traces" / "azure_llm_2023_conv.csv").generate(0)
    assert len(table) == 19_366
    assert table.arrival_ns[:3].tolist() == [0, 4_314_579_000, 4_541_877_000]
    assert table.arrival_ns[-1] == 3_501_721_937_000
    assert (table.prompt_tokens[0], table.output_tokens[-1]) == (374, 183)
    assert (np.median(table.prompt_tokens), np.median(table.output_tokens)) == (1020, 129)


def test_the_mooncake_traces_are_read_with_their_prefixes(shared_data: Path) -> None:
    folder = shared_data / "traces"
    table = TraceWorkload(path=folder / "mooncake_conversation_first30min.jsonl").generate(0)
    assert len(table) == 5_719
    # Its stamps are 2.999 to 3.001 s apart, with ten requests each on average: spread, they come about evenly.
    gaps = np.diff(table.arrival_ns)
    assert np.mean(gaps == 0) < 0.001
    assert gaps.std() / gaps.mean() < 1.2
    assert 1_797e9 - 3e9 < table.arrival_ns[-1] < 1_800e9
    np.testing.assert_array_equal(np.diff(table.segment_offsets), -(-table.prompt_tokens // 512))
    assert len(TraceWorkload(path=folder / "mooncake_synthetic.jsonl").generate(0)) == 3_993
