"""Each format of recorded workloads gives the requests it tells of, and its faults are named by line."""

import bz2
import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmsim.errors import ScenarioError
from llmsim.workload import RequestTable, TraceWorkload
from llmsim.workload.describe import prefix_hits
from llmsim.workload.readers import ColumnMapping, format_of, read_trace
from llmsim.workload.readers.plain import write_trace
from llmsim.workload.readers.sharegpt import ShareGptFormat, count_words
from tests.workload.factories import a_client, a_table, prompt_of

Read = Callable[..., RequestTable]
AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
CLEAN = AZURE + "2024-05-10 00:00:00.0000001,5,6\n2024-05-10 00:00:01.5,7,8\n"
MAPPING = ColumnMapping(time="ts", time_unit="ms", prompt_tokens="in", output_tokens="out")


@pytest.fixture
def read(tmp_path: Path) -> Read:
    """Write a text to a file and read it."""

    def write_and_read(text: str, name: str = "auto", skip: bool = False, columns: Any = None) -> RequestTable:
        path = tmp_path / "trace.file"
        path.write_text(text, encoding="utf-8")
        form = columns.format() if columns else format_of(path, name)
        return read_trace(path, form, skip_bad_rows=skip)

    return write_and_read


def assert_same(first: RequestTable, second: RequestTable) -> None:
    """Every column, and which client each row is of."""
    for name in RequestTable.__slots__:
        if name not in ("client", "client_names"):
            np.testing.assert_array_equal(getattr(first, name), getattr(second, name), err_msg=name)
    names = [np.array(table.client_names)[table.client].tolist() for table in (first, second)]
    assert names[0] == names[1]


def lines(*records: dict[str, Any]) -> str:
    return "".join(json.dumps(record) + "\n" for record in records)


class TestColumns:
    def test_reading_at_once_and_row_by_row_agree(self, read: Read) -> None:
        rng = np.random.default_rng(0)
        rows = "".join(
            f"2024-05-{1 + day:02} 03:04:{rng.random() * 60:010.7f},{rng.integers(1, 9999)},{rng.integers(1, 999)}\n"
            for day in range(28)
        )
        at_once = read(AZURE + rows)
        with pytest.warns(UserWarning, match="1 bad rows skipped"):
            one_by_one = read(AZURE + rows + "x,1,1\n", skip=True)
        assert_same(at_once, one_by_one)

    @settings(deadline=None, max_examples=50)
    @given(
        st.lists(st.decimals(0, 10**9, places=12), min_size=1, max_size=20), st.sampled_from(["s", "ms", "us", "ns"])
    )
    def test_times_at_once_are_those_one_by_one(self, times: list[Any], unit: str) -> None:
        from llmsim.workload.readers.mapping import TIME_UNITS

        texts = [str(time) for time in times]
        kind = TIME_UNITS[unit].start()
        if all("E" not in text for text in texts):
            assert kind.many(pa.array(texts)).tolist() == [kind.one(text) for text in texts]

    @pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lambda raw: pa.compress(raw, "zstd", asbytes=True)])
    def test_packed_files_are_unpacked(self, tmp_path: Path, pack: Callable[[bytes], bytes]) -> None:
        suffix = {gzip.compress: "gz", bz2.compress: "bz2"}.get(pack, "zst")
        path = tmp_path / f"trace.csv.{suffix}"
        path.write_bytes(pack(CLEAN.encode()))
        table = TraceWorkload(path=path).generate(0)
        assert table.arrival_ns.tolist() == [0, 1_499_999_900]
        path.write_bytes(pack((CLEAN + "x,1,1\n").encode()))
        with pytest.raises(ScenarioError, match="line 4: TIMESTAMP 'x'"):
            TraceWorkload(path=path).generate(0)

    def test_a_damaged_packed_file_is_named(self, tmp_path: Path) -> None:
        path = tmp_path / "trace.csv.gz"
        path.write_bytes(gzip.compress(CLEAN.encode())[:-20] + b"garbage")
        with pytest.raises(ScenarioError, match=r"trace.csv.gz: the trace"):
            TraceWorkload(path=path).generate(0)

    def test_parquet_is_read_with_times_and_faults(self, tmp_path: Path) -> None:
        import pandas as pd

        path = tmp_path / "trace.parquet"
        times = pd.to_datetime(["2024-05-10 00:00:00.0000001", "2024-05-10 00:00:01.5"], format="ISO8601").as_unit("ns")
        frame = pd.DataFrame({"TIMESTAMP": times, "ContextTokens": [5, 7], "GeneratedTokens": [6, 8]})
        frame.to_parquet(path)
        assert TraceWorkload(path=path).generate(0).arrival_ns.tolist() == [0, 1_499_999_900]
        frame.assign(GeneratedTokens=[6, 0]).to_parquet(path)
        with pytest.raises(ScenarioError, match="line 2: GeneratedTokens '0' is not"):
            TraceWorkload(path=path).generate(0)
        path.write_bytes(b"PAR1 no")
        with pytest.raises(ScenarioError, match=r"trace.parquet: the trace cannot be read"):
            TraceWorkload(path=path).generate(0)

    def test_five_million_rows_would_take_less_than_a_minute(self, tmp_path: Path) -> None:
        from time import process_time

        path = tmp_path / "big.csv"
        row = "2024-05-10 00:00:0{}.1234567,{},{}\n"
        path.write_text(AZURE + "".join(row.format(each % 10, 1 + each % 8000, 9) for each in range(100_000)))
        began = process_time()
        with pytest.warns(UserWarning, match="sorted"):
            read_trace(path, format_of(path))
        assert process_time() - began < 60 / 50

    def test_a_file_with_images_and_one_without_times_are_read(self, read: Read) -> None:
        text = "TIMESTAMP,NumImages,ContextTokens,GeneratedTokens\n2025-01-01 00:00:00.1Z,2,900,5\n"
        assert read(text).prompt_tokens.tolist() == [900]
        text = "num_prefill_tokens,num_decode_tokens,num_total_tokens,pd_ratio\n374,44,418,8.5\n"
        assert read(text).output_tokens.tolist() == [44]

    def test_burstgpt_models_are_clients_and_its_sessions_are_kept(self, read: Read) -> None:
        table = read(
            "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
            "5,,3,ChatGPT,472,18,490,API log\n45,88,12,GPT-4,1087,230,1317,Conversation log\n"
            "50,88,9,GPT-4,2000,100,2100,Conversation log\n"
        )
        assert table.client_names == ("ChatGPT", "GPT-4")
        assert table.client.tolist() == [0, 1, 1]
        assert table.session.tolist() == [-1, 0, 0]


class TestMapping:
    @pytest.mark.parametrize(
        ("unit", "times"),
        [
            ("s", ("1700000000.5", "1700000001")),
            ("ms", ("1700000000500", "1700000001000")),
            ("us", ("1700000000500000", "1700000001000000.0")),
            ("ns", ("1700000000500000000", "1700000001000000000")),
            ("iso", ("2023-11-14 22:13:20.5", "2023-11-14 22:13:21")),
        ],
    )
    def test_units_of_time(self, read: Read, unit: str, times: tuple[str, str]) -> None:
        columns = ColumnMapping(time="when", time_unit=unit, prompt_tokens="a", output_tokens="b")  # type: ignore[arg-type]
        table = read(f"b,when,a\n2,{times[0]},1\n4,{times[1]},3\n", columns=columns)
        assert table.arrival_ns.tolist() == [0, 500_000_000]
        assert (table.prompt_tokens.tolist(), table.output_tokens.tolist()) == ([1, 3], [2, 4])

    def test_all_columns_are_used(self, read: Read) -> None:
        columns = ColumnMapping(
            time="t", prompt_tokens="in", output_tokens="out", session="chat", cached_tokens="hit", max_tokens="limit",
            priority="prio", model="llm",
        )  # fmt: skip
        table = read(
            "t,in,out,chat,hit,limit,prio,llm\n0,100,10,a,0,50,1,big\n1,30,5,b,0,-1,0,small\n9,150,5,a,105,50,2,big\n",
            columns=columns,
        )
        assert table.session.tolist() == [0, 1, 0]
        assert table.after.tolist() == [-1, -1, 0]
        assert table.max_tokens.tolist() == [50, -1, 50]
        assert table.priority.tolist() == [1, 0, 2]
        assert np.array(table.client_names)[table.client].tolist() == ["big", "small", "big"]
        assert prompt_of(table, 2)[:105] == prompt_of(table, 0) + [(-1, index) for index in range(5)]
        assert prefix_hits(table)[0].tolist() == [0, 0, 105]

    def test_json_lines_are_mapped_by_key_and_their_faults_named(self, read: Read) -> None:
        columns = ColumnMapping(time="ts", prompt_tokens="usage.in", output_tokens="usage.out")
        good = {"ts": 5.25, "usage": {"in": 3, "out": 4}}
        assert read(lines(good, {**good, "ts": 6}), columns=columns).arrival_ns.tolist() == [0, 750_000_000]
        with pytest.raises(ScenarioError, match=r"line 2: usage.out '' is not a whole number >= 1"):
            read(lines(good, {"ts": 1, "usage": {"in": 3}}), columns=columns)
        with pytest.raises(ScenarioError, match="line 2: is not a JSON object"):
            read(lines(good) + "{oops\n", columns=columns)

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("ts,in\n1,2\n", "missing column out; found: ts, in"),
            ("ts,in,out\n1,2,3\nnan,2,3\n", "line 3: ts 'nan' is not a number of milliseconds"),
            ("ts,in,out\n1,2,3\n2,NaN,3\n", "line 3: in 'NaN' is not a whole number >= 1"),
            ("ts,in,out\n1,2,3\n2,-4,3\n", "line 3: in '-4' is not a whole number >= 1"),
            ("ts,in,out\n1,2,3\n2,4,0x1f\n", "line 3: out '0x1f' is not a whole number"),
            ("ts,in,out\n1,2,3\n2,4,1_000\n", "line 3: out '1_000' is not a whole number"),
            ("ts,in,out\n1,2,3\n2,4,5.0\n", "line 3: out '5.0' is not a whole number"),
            (f"ts,in,out\n1,2,3\n2,{10**20},3\n", "line 3: in '10+' is too large"),
            ("ts,in,out\n1e300,2,3\n", "line 2: ts '1e300' is too large a number of milliseconds"),
        ],
    )
    def test_faults_are_named(self, read: Read, text: str, message: str) -> None:
        with pytest.raises(ScenarioError, match=message):
            read(text, columns=MAPPING)

    def test_milliseconds_read_as_seconds_are_suspected_and_said(self, read: Read) -> None:
        wrong = ColumnMapping(time="ts", prompt_tokens="in", output_tokens="out")
        text = "ts,in,out\n" + "".join(f"{437 * each},5,5\n" for each in range(50))
        read(text, columns=MAPPING)
        with pytest.raises(ScenarioError, match="'1700000000000' is too large a number of seconds; is it of a smaller"):
            read("ts,in,out\n1700000000000,5,5\n", columns=wrong)
        with pytest.warns(UserWarning, match="times are whole seconds, 437 s apart on average; are they milliseconds"):
            read(text, columns=wrong)

    def test_seconds_read_as_nanoseconds_are_suspected_and_said(self, read: Read) -> None:
        text = "ts,in,out\n" + "".join(f"{17 * each},5,5\n" for each in range(50))
        wrong = ColumnMapping(time="ts", time_unit="ns", prompt_tokens="in", output_tokens="out")
        with pytest.warns(UserWarning, match="requests a second; are the times in a larger unit"):
            read(text, columns=wrong)


class TestCanonical:
    @pytest.mark.parametrize("suffix", ["csv", "parquet"])
    def test_a_written_table_reads_back_the_same(self, tmp_path: Path, suffix: str) -> None:
        from llmsim.workload.lengths import Uniform

        clients = (
            a_client("a", turns=Uniform(low=1, high=4), think_s=3.3, shared_prefix_tokens=50, priority=2),
            a_client("b", users=3, requests_per_user=5, max_tokens=20),
            a_client("c"),
        )
        table = a_table(*clients, requests=200)
        path = tmp_path / f"trace.{suffix}"
        write_trace(table, path)
        assert_same(read_trace(path, format_of(path)), table)

    def test_only_columns_that_say_something_are_written(self, tmp_path: Path) -> None:
        path = tmp_path / "trace.csv"
        write_trace(RequestTable.build(arrival_ns=[0, 7], prompt_tokens=[1, 2], output_tokens=3), path)
        assert path.read_text().splitlines() == [
            "arrival_s,prompt_tokens,output_tokens",
            "0.000000000,1,3",
            "0.000000007,2,3",
        ]

    def test_bad_pieces_of_a_prompt_are_named(self, read: Read) -> None:
        header = "arrival_s,prompt_tokens,output_tokens,segments\n"
        with pytest.raises(ScenarioError, match="line 2: segments '1:2' is not a list of stream:start:tokens"):
            read(header + "0,5,5,1:2\n")
        with pytest.raises(ScenarioError, match="prompt_tokens is 5; allowed is 4, the sum over its segments"):
            read(header + "0,5,5,1:0:4\n")

    def test_a_place_that_cannot_be_written_is_named(self, tmp_path: Path) -> None:
        with pytest.raises(ScenarioError, match="cannot be written"):
            write_trace(a_table(requests=2), tmp_path / "absent" / "trace.csv")


class TestMooncake:
    def test_turns_with_a_delay_follow_the_end_of_the_turn_before(self, read: Read) -> None:
        table = read(
            lines(
                {"timestamp": 1000, "input_length": 10, "output_length": 5, "session_id": "s"},
                {"timestamp": 1500, "input_length": 9, "output_length": 5},
                {"delay": 250.5, "input_length": 20, "output_length": 5, "session_id": "s"},
            )
        )
        assert table.session.tolist() == [0, 0, -1]
        assert table.after.tolist() == [-1, 0, -1]
        assert table.think_ns.tolist() == [0, 250_500_000, 0]
        assert table.arrival_ns.tolist() == [0, 0, 500_000_000]

    @pytest.mark.parametrize("value", ["NaN", "1e400", '"0"', "null"])
    def test_a_bad_time_is_named(self, read: Read, value: str) -> None:
        with pytest.raises(ScenarioError, match=r"line 1: timestamp .* is not a number of milliseconds"):
            read(f'{{"timestamp": {value}, "input_length": 5, "output_length": 1}}\n')


class TestWeka:
    CONVERSATION: ClassVar[dict[str, Any]] = {
        "id": "c1",
        "requests": [
            {"t": 0.0, "in": 140, "out": 80, "hash_ids": [1, 2]},
            {"t": 1.0, "tool": "shell"},
            {"t": 4.2, "in": 200, "out": 64, "hash_ids": [1, 2, 3]},
            {"t": 2.0, "agent": "sub", "requests": [{"t": 2.0, "in": 64, "out": 7, "hash_ids": [1]}]},
        ],
    }

    def test_requests_share_blocks_within_their_conversation_only(self, read: Read) -> None:
        table = read(lines(self.CONVERSATION, {**self.CONVERSATION, "id": "c2"}))
        assert len(table) == 6
        ours = np.flatnonzero(table.session == 0)
        assert table.arrival_ns[ours].tolist() == [0, 2 * 10**9, 4_200_000_000]
        assert table.after[ours].tolist() == [-1, -1, int(ours[0])]
        first, sub, third = (prompt_of(table, row) for row in ours)
        assert (len(first), len(sub), len(third)) == (140, 64, 200)
        assert first[:128] == third[:128]
        assert sub == first[:64]
        assert not set(first) & set(prompt_of(table, np.flatnonzero(table.session == 1)[0]))

    def test_conversations_begin_at_the_rate_asked_for(self, tmp_path: Path) -> None:
        path = tmp_path / "trace.jsonl"
        path.write_text(lines(*[self.CONVERSATION] * 500))
        with pytest.raises(ScenarioError, match="has no arrival times; rate_per_s is needed"):
            TraceWorkload(path=path).generate(0)
        table = TraceWorkload(path=path, rate_per_s=2.0).generate(0)
        starts_s = table.arrival_ns[(table.after < 0) & (table.prompt_tokens == 140)] / 1e9
        assert 500 / starts_s[-1] == pytest.approx(2, rel=4 / np.sqrt(500))
        follows = table.after >= 0
        np.testing.assert_array_equal(table.arrival_ns[follows] - table.arrival_ns[table.after[follows]], 4_200_000_000)

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            (
                {"requests": [{"t": 0, "in": 60, "out": 1, "hash_ids": [1]}]},
                "hash_ids has 1 blocks of 64; in is only 60",
            ),
            ({"requests": [{"t": 0, "in": 0, "out": 1}]}, "in 0 is not a whole number >= 1"),
            ({"requests": [{"t": -1, "in": 5, "out": 1}]}, "t -1 is not a number of seconds"),
            ({"requests": [{"t": 2, "in": 5, "out": 1}, {"t": 1, "in": 5, "out": 1}]}, "t goes back from 2 to 1 s"),
            ({"requests": [{"tool": "x"}]}, "has no request with in and out"),
            ({"requests": 5}, "requests is not a list"),
        ],
    )
    def test_faults_are_named(self, read: Read, change: dict[str, Any], message: str) -> None:
        with pytest.raises(ScenarioError, match=f"line 2: {message}"):
            read(lines(self.CONVERSATION, {**self.CONVERSATION, **change}))


class TestShareGpt:
    TURNS = (("human", "a b c"), ("gpt", "d e f g h i"), ("human", "j k l"), ("gpt", "m"), ("human", "never answered"))
    TEXT = json.dumps(
        [{"id": "a", "conversations": [{"from": who, "value": text} for who, text in TURNS]}] * 2, indent=1
    )

    def test_conversations_are_sessions_of_growing_prompts(self, read: Read) -> None:
        table = read(self.TEXT)
        assert table.prompt_tokens.tolist() == [4, 4 + 8 + 4] * 2
        assert table.output_tokens.tolist() == [8, 1] * 2
        assert table.after.tolist() == [-1, 0, -1, 2]
        assert table.session.tolist() == [0, 0, 1, 1]
        assert prompt_of(table, 1)[:12] == prompt_of(table, 0) + [(-1, index) for index in range(8)]

    def test_vllms_sampling_takes_first_turns_of_moderate_length(self, read: Read) -> None:
        table = read(self.TEXT, name="sharegpt-vllm")
        assert (table.prompt_tokens.tolist(), table.output_tokens.tolist()) == ([4, 4], [8, 8])
        short = json.dumps([{"conversations": [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}]}])
        with pytest.raises(ScenarioError, match="no conversation has a question with an answer"):
            read(short, name="sharegpt-vllm")

    def test_a_count_of_ones_own_is_used(self, tmp_path: Path) -> None:
        path = tmp_path / "texts.json"
        path.write_text(self.TEXT)
        assert read_trace(path, ShareGptFormat(count=len)).output_tokens.tolist() == [11, 1] * 2

    def test_words_become_tokens_by_the_rule_of_thumb(self) -> None:
        assert [count_words(text) for text in ("", "one", "one two three", "a " * 75)] == [0, 1, 4, 100]

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ('[{"id": "a", "conversations": [', "is not JSON"),
            ('[{"id": "a"}]', r'line 1: has no list "conversations"'),
            ('[\n{"conversations": [{"from": "human", "value": 5}]}]', "line 2: value 5 is not a text"),
        ],
    )
    def test_faults_are_named(self, read: Read, text: str, message: str) -> None:
        with pytest.raises(ScenarioError, match=message):
            read(text, name="sharegpt")

    def test_a_long_file_is_read_piece_by_piece(self, read: Read) -> None:
        one = {"conversations": [{"from": "human", "value": "word " * 9000}, {"from": "gpt", "value": "ok"}]}
        assert len(read(json.dumps([one] * 100))) == 100


class TestGateway:
    CALL: ClassVar[dict[str, Any]] = {
        "created": 1_730_000_010,
        "model": "m",
        "usage": {"prompt_tokens": 100, "completion_tokens": 20},
        "duration_ms": 1500,
    }

    def test_the_arrival_is_the_end_less_the_duration(self, read: Read) -> None:
        later = {**self.CALL, "created": 1_730_000_020, "duration_ms": 500}
        assert read(lines(self.CALL, later)).arrival_ns.tolist() == [0, 11_000_000_000]

    @pytest.mark.parametrize(
        "start", [1_730_000_009, 1_730_000_009.0, 1_730_000_009_000, 1_730_000_009_000_000, "2024-10-27T03:33:29Z"]
    )
    def test_a_logged_start_is_preferred_in_any_unit(self, read: Read, start: Any) -> None:
        first = {**self.CALL, "startTime": 1_730_000_000}
        if isinstance(start, str):
            first["startTime"] = "2024-10-27T03:33:20Z"
        assert read(lines(first, {**self.CALL, "startTime": start})).arrival_ns.tolist() == [0, 9 * 10**9]

    def test_cached_tokens_are_those_of_the_call_before(self, read: Read) -> None:
        again = {
            **self.CALL,
            "created": 1_730_000_030,
            "usage": {
                "prompt_tokens": 150,
                "completion_tokens": 5,
                "prompt_tokens_details": {"cached_tokens": 96},
            },
        }
        table = read(lines(self.CALL, again))
        assert prompt_of(table, 1)[:96] == prompt_of(table, 0)[:96]
        assert prefix_hits(table)[0].tolist() == [0, 96]

    def test_a_call_of_a_session_waits_only_if_it_did(self, read: Read) -> None:
        calls = [
            {**self.CALL, "session_id": "s", "created": 1_730_000_000 + end, "duration_ms": 2000} for end in (2, 3, 9)
        ]
        table = read(lines(*calls))
        assert table.after.tolist() == [-1, -1, 1]

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"status": 500}, "failed: status 500"),
            ({"status": "failure"}, "failed: status 'failure'"),
            ({"error": {"message": "x"}}, "failed: "),
            ({"created": None}, "has no time; looked for startTime"),
            ({"created": -5}, "time -5 is not a number since 1970"),
            ({"usage": {"prompt_tokens": 5}}, "usage.completion_tokens None is not a whole number >= 1"),
        ],
    )
    def test_faults_are_named(self, read: Read, change: dict[str, Any], message: str) -> None:
        with pytest.raises(ScenarioError, match=f"line 2: {message}"):
            read(lines(self.CALL, {**self.CALL, **change}))
        with pytest.warns(UserWarning, match="1 bad rows skipped, 1 kept"):
            assert len(read(lines(self.CALL, {**self.CALL, **change}), skip=True)) == 1


class TestReplay:
    ROWS = "arrival_s,prompt_tokens,output_tokens\n" + "".join(f"{each},{each + 1},1\n" for each in range(100))

    def replay(self, tmp_path: Path, **fields: Any) -> RequestTable:
        path = tmp_path / "trace.csv"
        path.write_text(self.ROWS)
        return TraceWorkload(path=path, **fields).generate(0)

    def test_a_window_is_cut_out(self, tmp_path: Path) -> None:
        table = self.replay(tmp_path, start_s=10.0, duration_s=20.0)
        assert table.prompt_tokens.tolist() == list(range(11, 31))
        assert table.arrival_ns[0] == 0
        with pytest.raises(ScenarioError, match="nothing arrives in the window; the last request is at 99 s"):
            self.replay(tmp_path, start_s=100.0)

    def test_new_times_keep_the_order_of_lengths(self, tmp_path: Path) -> None:
        table = self.replay(tmp_path, rate_per_s=50.0, arrivals={"kind": "constant"})
        assert table.prompt_tokens.tolist() == list(range(1, 101))
        np.testing.assert_array_equal(np.diff(table.arrival_ns), 20_000_000)

    def test_only_one_way_to_change_the_rate(self, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match="either rate_scale or rate_per_s"):
            self.replay(tmp_path, rate_per_s=5.0, rate_scale=2.0)

    def test_a_tokenizer_is_for_texts(self, tmp_path: Path) -> None:
        with pytest.raises(ScenarioError, match="no texts for a tokenizer; its format is csv"):
            self.replay(tmp_path, tokenizer=tmp_path / "tokenizer.json")


def test_the_azure_code_trace_is_read_whole(shared_data: Path) -> None:
    table = TraceWorkload(path=shared_data / "traces" / "azure_llm_2023_code.csv").generate(0)
    assert len(table) == 8_819
    assert (table.prompt_tokens[0], table.output_tokens[0], table.arrival_ns[1]) == (4808, 10, 52_000_000)


def test_the_real_mooncake_trace_survives_conversion(shared_data: Path, tmp_path: Path) -> None:
    path = shared_data / "traces" / "mooncake_synthetic.jsonl"
    table = read_trace(path, format_of(path))
    assert len(table) == 3_993
    write_trace(table, tmp_path / "trace.csv")
    assert_same(read_trace(tmp_path / "trace.csv", format_of(tmp_path / "trace.csv")), table)
