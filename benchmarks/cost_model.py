"""How many step estimates a second the cost model makes: ``python benchmarks/cost_model.py``.

Prints steps, which the engine asks for, and accounts of many iterations at once, which it asks for afterwards. Each is
the best of several rounds, so that other work on the machine counts little.
"""

import timeit
from collections.abc import Callable
from typing import Any

import numpy as np

from llmsim.closed_form import decodes, prompts
from llmsim.cost import AnalyticCost, Batch, CostModel
from llmsim.deployment import Deployment
from llmsim.hardware import load_accelerator
from llmsim.model import load_model

DEPLOYMENTS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "8B": ("llama-3.1-8b", "h100-sxm", {}),
    "30B MoE, TP 4": ("qwen3-30b-a3b", "h100-sxm", {"tensor_parallel_size": 4}),
    "windows": ("gpt-oss-20b", "h100-sxm", {}),
    "latent, TP 8": ("deepseek-v3", "h200-sxm", {"tensor_parallel_size": 8}),
    "70B, TP 2, PP 3": ("llama-3.1-70b", "a100-sxm-80gb", {"tensor_parallel_size": 2, "pipeline_parallel_size": 3}),
}
MANY = 16_384


def seconds(call: Callable[[], object], runs: int) -> float:
    """The time of one call, best of five rounds."""
    call()
    return min(timeit.repeat(call, number=runs, repeat=5)) / runs


def measure(cost: CostModel, window: int | None) -> tuple[float, ...]:
    """Seconds of a mixed step, of a decode step and of accounting for an iteration among many."""
    decode = decodes(40, 800, window)
    mixed = Batch(*(sum(fields) for fields in zip(decode, prompts(1, 512, 100, window), strict=True)))
    many = Batch(*(np.full(MANY, field) for field in mixed))
    return (
        seconds(lambda: cost.step(mixed), 5000),
        seconds(lambda: cost.step(decode), 5000),
        seconds(lambda: cost.account(many), 10) / MANY,
    )


def main() -> None:
    """Print a line for each deployment."""
    print(f"{'':<18}{'mixed step':>12}{'decode step':>12}{'steps/s':>12}{'accounts/s':>14}")
    for name, (model, accelerator, sizes) in DEPLOYMENTS.items():
        deployment = Deployment(model=load_model(model), accelerator=load_accelerator(accelerator), **sizes)
        mixed, decode, each = measure(AnalyticCost().start(deployment), deployment.model.sliding_window)
        times = "".join(f"{1e6 * value:>9.2f} us" for value in (mixed, decode))
        print(f"{name:<18}{times}{1 / mixed:>12,.0f}{1 / each:>14,.0f}")


if __name__ == "__main__":
    main()
