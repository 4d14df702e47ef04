"""Readers of what benchmark tools write: one file a tool, and its name in ``FORMATS``.

Each turns parsed JSON, or text, into ``Measured`` runs in llmsim's definitions. Logs and Prometheus metrics of a
server are no benchmarks: ``logs`` and ``prometheus`` have readers of their own.
"""

import json
from pathlib import Path
from typing import Any, NamedTuple

from llmsim.errors import ScenarioError
from llmsim.validation.measured import Measured, checked
from llmsim.validation.readers import aiperf, guidellm, hf_benchmarker, inference_perf, llmperf, vllm_bench
from llmsim.validation.readers.common import Format, load


class _Format(NamedTuple):
    name: str
    format: Format


FORMATS: tuple[_Format, ...] = (
    _Format("vllm-bench", vllm_bench),
    _Format("guidellm", guidellm),
    _Format("aiperf", aiperf),
    _Format("inference-perf", inference_perf),
    _Format("llmperf", llmperf),
    _Format("hf-inference-benchmarker", hf_benchmarker),
)


def read_measured(path: Path, name: str = "auto") -> list[Measured]:
    """The runs of a benchmark's result file, in llmsim's definitions and checked to add up.

    Raises ScenarioError when the file cannot be read, is of no known tool, or lacks what the tool always writes.
    """
    data = load(path)
    for each in FORMATS:
        if name == each.name or (name == "auto" and each.format.recognises(data)):
            try:
                return [checked(run) for run in each.format.read(data)]
            except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
                reason = f"{error} is missing" if isinstance(error, KeyError) else str(error)
                raise ScenarioError(f"{path}: not a result of {each.name}: {reason}") from None
    known = ", ".join(each.name for each in FORMATS)
    raise ScenarioError(f"{path}: not the result of a known benchmark; known: {known}. It begins: {_beginning(data)}")


def _beginning(data: Any) -> str:
    return (data if isinstance(data, str) else json.dumps(data))[:80]
