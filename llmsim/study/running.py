"""Many runs at once, through joblib: the one place where studies run scenarios."""

import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Literal, NamedTuple, TypeVar

from llmsim.errors import ScenarioError
from llmsim.results.results import Results
from llmsim.results.stability import Stability
from llmsim.scenario import Scenario
from llmsim.simulation import simulate

Backend = Literal["loky", "threading", "dask", "ray"]
"""Where runs go: processes of this machine, threads of this process (for objects that cannot be sent), or a cluster."""

_Task = TypeVar("_Task")
_Answer = TypeVar("_Answer")


class Progress(NamedTuple):
    """How far a study is."""

    done: int
    total: int
    elapsed_s: float

    @property
    def left_s(self) -> float:
        """Expected time to the end, at the pace so far."""
        return self.elapsed_s / self.done * (self.total - self.done) if self.done else float("nan")


OnProgress = Callable[[Progress], None]


class Outcome(NamedTuple):
    """What a study keeps of a run."""

    summary: dict[str, Any]
    """Its figures."""
    stability: Stability

    def figure(self, key: str) -> float:
        """A figure by its dotted key in the summary; NaN when there is none."""
        return figure(self.summary, key)


def run_once(scenario: Scenario) -> Outcome:
    """A run without its iterations, which studies do not read."""
    return outcome_of(simulate(kept(scenario, "requests") if scenario.run.record == "full" else scenario))


def outcome_of(results: Results) -> Outcome:
    """What a study keeps of results."""
    return Outcome(results.figures(), results.stability())


def run_all(
    function: Callable[[_Task], _Answer],
    tasks: Sequence[_Task],
    jobs: int = 1,
    backend: Backend = "loky",
    progress: OnProgress | None = None,
) -> list[_Answer]:
    """``function`` of each task, in the order of the tasks.

    ``jobs`` is the number of processes; -1: one a core. Backends ``dask`` and ``ray`` need their extras; they take
    the cluster this process is connected to, or start one on this machine and end it. Ray tells no progress before
    the end.

    Raises:
        ScenarioError: when the backend is not installed.
    """
    from joblib import Parallel, delayed

    begin = time.monotonic()
    answers: list[_Answer | None] = [None] * len(tasks)
    with _backend(backend, jobs):
        streams = backend != "ray"
        pool = Parallel(n_jobs=jobs, return_as="generator_unordered" if streams else "list")
        found: Iterable[tuple[int, _Answer]] = pool(
            delayed(_numbered)(function, number, task) for number, task in enumerate(tasks)
        )
        for done, (number, answer) in enumerate(found, 1):
            answers[number] = answer
            if progress is not None and (streams or done == len(tasks)):
                progress(Progress(done, len(tasks), time.monotonic() - begin))
    return answers  # type: ignore[return-value]


def seeds_of(scenario: Scenario, replications: int) -> list[Scenario]:
    """The scenario with its own seed and the ones after it."""
    return [replace(scenario, seed=scenario.seed + number) for number in range(replications)]


def kept(scenario: Scenario, record: Literal["full", "requests", "summary"]) -> Scenario:
    """The scenario at another record level."""
    return replace(scenario, run=replace(scenario.run, record=record))


def figure(summary: dict[str, Any], key: str) -> float:
    """A figure of a summary by its dotted key, such as ``ttft_s.p99``; NaN when it has no value.

    Raises:
        ScenarioError: when the summary has no such figure.
    """
    value: Any = summary
    for part in key.split("."):
        if not isinstance(value, dict) or part not in value:
            raise ScenarioError(f"metric {key}: no such figure; allowed are {', '.join(figures(summary))}")
        value = value[part]
    return float("nan") if value is None else float(value)


def figures(summary: dict[str, Any], prefix: str = "") -> dict[str, float]:
    """All numbers of a summary by dotted key; NaN where there is no value."""
    found: dict[str, float] = {}
    for key, value in summary.items():
        name = f"{prefix}{key}"
        if isinstance(value, dict):
            found |= figures(value, f"{name}.")
        elif value is None or isinstance(value, bool | int | float):
            found[name] = float("nan") if value is None else float(value)
    return found


def _numbered(function: Callable[[_Task], _Answer], number: int, task: _Task) -> tuple[int, _Answer]:
    return number, function(task)


@contextmanager
def _backend(name: Backend, jobs: int) -> Iterator[None]:
    """Runs of joblib go there; a cluster that is started for it ends with it."""
    from joblib import effective_n_jobs, parallel_config

    try:
        end = _CLUSTERS[name](effective_n_jobs(jobs)) if name in _CLUSTERS else _nothing
    except ImportError as error:
        raise ScenarioError(f"backend {name}: {error.name} is not installed: pip install 'llmsim[{name}]'") from None
    try:
        with parallel_config(backend=name):
            yield
    finally:
        end()


def _dask(workers: int) -> Callable[[], None]:
    """The current client of dask.distributed, or one on this machine; returns what ends it."""
    from distributed import Client, default_client

    try:
        default_client()
    except ValueError:
        client = Client(n_workers=workers, threads_per_worker=1, dashboard_address=None, silence_logs=logging.ERROR)
        close: Callable[[], None] = client.close
        return close
    return _nothing


def _ray(workers: int) -> Callable[[], None]:
    """The Ray cluster this process is part of, or one on this machine; returns what ends it."""
    import ray
    from ray.util.joblib import register_ray

    register_ray()
    if ray.is_initialized():
        return _nothing
    # Ray tells its makers of each cluster unless it is told not to.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    ray.init(num_cpus=workers, include_dashboard=False, logging_level=logging.ERROR, log_to_driver=False)
    shutdown: Callable[[], None] = ray.shutdown
    return shutdown


def _nothing() -> None:
    """A cluster that was there before stays."""


_CLUSTERS: dict[str, Callable[[int], Callable[[], None]]] = {"dask": _dask, "ray": _ray}
