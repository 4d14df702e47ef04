"""What servers log at startup and about load is read, whatever engine and version wrote it."""

from pathlib import Path

import numpy as np
import pytest

from llmsim.errors import ScenarioError
from llmsim.units import GIB
from llmsim.validation.readers.logs import SERIES, parse_log, read_log

V1 = """\
(EngineCore pid=1) INFO 11-30 14:00:01 [gpu_model_runner.py:1] Model loading took 15.06 GiB and 3.1 seconds
INFO 11-30 14:00:20 [kv_cache_utils.py:1] Available KV cache memory: 51.63 GiB
INFO 11-30 14:00:20 [kv_cache_utils.py:1] GPU KV cache size: 410,128 tokens
INFO 11-30 14:00:20 [kv_cache_utils.py:1] Maximum concurrency for 8,192 tokens per request: 50.06x
INFO 11-30 14:00:55 [loggers.py:1] Engine 000: Avg prompt throughput: 1000.5 tokens/s, Avg generation throughput: 20.0 \
tokens/s, Running: 3 reqs, Waiting: 0 reqs, GPU KV cache usage: 1.5%, Prefix cache hit rate: 25.0%
WARNING 11-30 14:01:00 [scheduler.py:1] Sequence group 7 is preempted by PreemptionMode.RECOMPUTE mode
INFO 11-30 14:01:05 [loggers.py:1] Engine 000: Avg prompt throughput: 0.0 tokens/s, Avg generation throughput: 55.5 \
tokens/s, Running: 40 reqs, Waiting: 12 reqs, GPU KV cache usage: 99.8%, Prefix cache hit rate: 30.0%
"""
V0 = """\
INFO: # GPU blocks: 15709, # CPU blocks: 2048
INFO: model weights take 5.2GiB; non_torch_memory takes 0.06GiB; PyTorch activation peak memory takes 1.40GiB; rest
INF: Avg prompt throughput: 10.0 tokens/s, Avg generation throughput: 20.0 tokens/s, Running: 3 reqs, Swapped: 0 reqs, \
Pending: 2 reqs, GPU KV cache usage: 7.5%, CPU KV cache usage: 0.0%.
INF: Avg prompt throughput: 11.0 tokens/s, Avg generation throughput: 21.0 tokens/s, Running: 4 reqs, Swapped: 0 reqs, \
Pending: 0 reqs, GPU KV cache usage: 8.5%, CPU KV cache usage: 0.0%.
"""
SGLANG = """\
[2025-11-30 23:59:58] KV Cache is allocated. #tokens: 465236, K size: 28.40 GB, V size: 28.40 GB
[2025-11-30 23:59:58] max_total_num_tokens=465236, chunked_prefill_size=8192
[2025-11-30 23:59:59] Prefill batch, #new-seq: 2, #new-token: 300, #cached-token: 100, token usage: 0.05, \
#running-req: 0, #queue-req: 7
[2025-12-01 00:00:02] Decode batch, #running-req: 2, #token: 400, token usage: 0.06, gen throughput (token/s): 88.5, \
#queue-req: 0
"""


def test_vllm_v1() -> None:
    log = parse_log(V1.splitlines(), "log")
    assert log.facts == {
        "weights_bytes": 15.06 * GIB,
        "kv_bytes": 51.63 * GIB,
        "kv_tokens": 410_128,
        "max_model_len": 8_192,
        "max_concurrency": 50.06,
    }
    assert tuple(log.series) == SERIES
    assert log.series["time_s"].tolist() == [0, 10]
    assert log.series["prompt_tokens_per_s"].tolist() == [1000.5, 0]
    assert log.series["output_tokens_per_s"].tolist() == [20, 55.5]
    assert log.series["running"].tolist() == [3, 40]
    assert log.series["waiting"].tolist() == [0, 12]
    assert log.series["kv_usage"] == pytest.approx([0.015, 0.998])
    assert log.series["prefix_hit_rate"] == pytest.approx([0.25, 0.3])
    assert (log.preemptions, log.flags) == (1, ())


def test_vllm_v0_without_times() -> None:
    log = parse_log(V0.splitlines(), "log")
    assert (log.facts["num_gpu_blocks"], log.facts["num_cpu_blocks"]) == (15_709, 2_048)
    assert log.facts["activation_bytes"] == 1.4 * GIB
    assert log.series["time_s"].tolist() == [0, 5]
    assert log.series["waiting"].tolist() == [2, 0]
    assert np.isnan(log.series["prefix_hit_rate"]).all()
    assert log.flags == ("lines without a time are taken to be 5 s apart",)


def test_sglang_past_midnight() -> None:
    log = parse_log(SGLANG.splitlines(), "log")
    assert log.facts["kv_tokens"] == 465_236
    assert log.series["time_s"].tolist() == [0, 3]
    assert log.series["running"].tolist() == [0, 2]
    assert log.series["waiting"].tolist() == [7, 0]
    assert log.series["kv_usage"].tolist() == [0.05, 0.06]
    assert log.series["prefix_hit_rate"][0] == 0.25
    assert log.series["output_tokens_per_s"][1] == 88.5


def test_other_texts_and_absent_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="log: no line of a vLLM or SGLang server is in it"):
        parse_log(["hello"], "log")
    with pytest.raises(ScenarioError, match=r"absent.log: cannot be read"):
        read_log(tmp_path / "absent.log")
