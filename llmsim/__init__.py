"""llmsim: a discrete-event simulator of LLM serving. From a scenario: latencies, GPUs, cost, and the reason.

Where to start reading, in this order:

1. ``scenario/specification.py``: what a user writes, and all that decides a run;
2. ``simulation.py``: how a run is put together from it;
3. ``engine/replica.py``: one engine at work, iteration after iteration, and who waits for what;
4. ``results/record.py``: what a run leaves behind, from which every figure is computed.

The public names below are loaded on first use, so that ``import llmsim`` costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from llmsim.errors import ScenarioError, SimulationError
    from llmsim.report.html import write_report
    from llmsim.results.results import Results, load_results
    from llmsim.scenario import Scenario, load_scenario
    from llmsim.simulation import simulate
    from llmsim.study.capacities import capacity
    from llmsim.study.comparing import compare
    from llmsim.study.planning import plan
    from llmsim.study.sweeping import sweep

    __version__: str

_MODULES = {
    "Results": "llmsim.results.results",
    "Scenario": "llmsim.scenario",
    "ScenarioError": "llmsim.errors",
    "SimulationError": "llmsim.errors",
    "capacity": "llmsim.study.capacities",
    "compare": "llmsim.study.comparing",
    "load_results": "llmsim.results.results",
    "load_scenario": "llmsim.scenario",
    "plan": "llmsim.study.planning",
    "simulate": "llmsim.simulation",
    "sweep": "llmsim.study.sweeping",
    "write_report": "llmsim.report.html",
}

__all__ = [
    "Results",
    "Scenario",
    "ScenarioError",
    "SimulationError",
    "__version__",
    "capacity",
    "compare",
    "load_results",
    "load_scenario",
    "plan",
    "simulate",
    "sweep",
    "write_report",
]


def __getattr__(name: str) -> Any:
    """A public name, when it is first asked for."""
    if name == "__version__":
        from importlib.metadata import version

        value: Any = version("llmsim")
    elif name in _MODULES:
        value = getattr(import_module(_MODULES[name]), name)
    else:
        raise AttributeError(f"module 'llmsim' has no attribute '{name}'")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
