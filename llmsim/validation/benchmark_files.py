"""Result files of benchmark tools as rows of measured values: what calibration reads beside tables.

A result file says how a server was loaded and what came out, and not which accelerator it had: that is told by whoever
asks. The server is taken to be vLLM with its defaults on one accelerator; whatever else it was belongs in a table.
"""

from collections.abc import Iterator
from pathlib import Path

from llmsim.errors import ScenarioError
from llmsim.validation import measured_values
from llmsim.validation.facts import Reading
from llmsim.validation.measured import Measured
from llmsim.validation.readers import read_measured
from llmsim.validation.rows import Row

TABLE_SUFFIX = ".csv"
STATISTICS = ("mean", "p50")
LATENCIES = {"ttft_s": "ttft_ms", "tpot_s": "tpot_ms", "itl_s": "itl_ms", "e2e_s": "e2e_ms"}
THROUGHPUTS = {"output_tokens_per_s": "throughput_output_tok_s", "requests_per_s": "req_s"}
NEEDED = ("prompt_tokens", "output_tokens")


def read_benchmark(path: Path, accelerator: str) -> Reading:
    """The facts of a benchmark's result file, measured on one ``accelerator`` of the catalogue.

    Raises:
        ScenarioError: when the file is of no known tool, or a run lacks its model or the lengths of its requests.
    """
    rows = [row for run in read_measured(path) for row in _rows(run, accelerator, path)]
    reading = Reading(str(path), measured_values.KIND, len(rows))
    measured_values.read(rows, reading)
    return reading


def _rows(run: Measured, accelerator: str, path: Path) -> Iterator[Row]:
    """A row a figure."""
    means = {name: run.statistics.get(name, {}).get("mean") for name in NEEDED}
    lacking = [name for name, mean in means.items() if mean is None]
    if not run.model or lacking:
        raise ScenarioError(f"{path}: {run.label}: does not tell {', '.join(lacking) or 'the model'}; write a table")
    shared = {
        "model": run.model,
        "hardware": accelerator,
        "n_gpus": "1",
        "tp": "1",
        "engine": "vllm",
        "engine_version": "",
        "source": run.tool,
        "load_kind": "closed-loop" if run.max_concurrency else "poisson" if run.request_rate_per_s else "offline",
        "concurrency": f"{run.max_concurrency or ''}",
        "rate_rps": f"{run.request_rate_per_s or ''}",
        "n_requests": f"{round(run.totals['completed'])}" if "completed" in run.totals else "",
        "input_tokens": f"{means['prompt_tokens']}",
        "output_tokens": f"{means['output_tokens']}",
    }
    for name, metric in LATENCIES.items():
        for statistic in STATISTICS:
            if (seconds := run.statistics.get(name, {}).get(statistic)) is not None:
                yield {**shared, "metric": metric, "statistic": statistic, "value": f"{1e3 * seconds}"}
    for name, metric in THROUGHPUTS.items():
        if name in run.totals:
            yield {**shared, "metric": metric, "statistic": "mean", "value": f"{run.totals[name]}"}
