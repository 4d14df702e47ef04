"""The error an estimate states: how far off simulations of the nearest measured servers were.

``tools/write_stated_errors.py`` scores the shipped facts and writes ``stated_errors.csv``, a row a kind of server and
figure; reports look the kind of a pool up in it. Kinds are told apart by GPU family, bits of the weights, and whether
the model has experts. Where fewer than ``ENOUGH`` facts are of a kind, the nearest wider one stands in: any weights,
any model, any GPU.
"""

import csv
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

FILE = Path(__file__).parent / "stated_errors.csv"
ENOUGH = 5
"""Facts of a kind from which on its median says something."""
ANY = "any"

FAMILIES = {
    "Hopper": ("h100", "h200", "gh200", "h20"),
    "Blackwell": ("b200", "b300", "gb200", "gb300"),
    "Ampere": ("a100", "a30", "a40", "a10", "rtx-3090"),
    "Ada": ("l4", "rtx-4090"),
    "RTX Blackwell": ("rtx-pro-6000", "rtx-5090"),
}
"""How the names of a family's accelerators begin."""
FIGURES = {
    "TPOT": ("tpot_mean", "itl_mean", "itl_p50", "decode_step_p50", "decode_step_mean"),
    "TTFT": ("ttft_mean", "ttft_p50", "prefill_mean", "prefill_p50"),
    "throughput": ("output_throughput_mean", "request_throughput_mean"),
}
"""Figures that are stated, and the metrics of validation that are one."""


class ServerKind(NamedTuple):
    """What servers are alike in; ``any`` where it does not matter."""

    family: str
    weights: str
    """16-bit, 8-bit or 4-bit."""
    model: str
    """dense, or experts."""

    def wider(self) -> Iterator["ServerKind"]:
        """This kind, and those that stand in for it, the nearest first."""
        yield self
        yield self._replace(weights=ANY)
        yield self._replace(weights=ANY, model=ANY)
        yield ServerKind(ANY, ANY, ANY)

    def told(self) -> str:
        """The kind in words."""
        model = {"dense": "dense models", "experts": "models with experts"}.get(self.model, "")
        parts = [part for part in (self.family, self.weights) if part != ANY]
        return ", ".join([*parts, model] if model else parts) or "all servers measured"


class StatedError(NamedTuple):
    """How far off the simulations of a kind of server were."""

    median: float
    """Of the absolute errors, as a share of the measured value."""
    facts: int
    kind: ServerKind


def kind_of_server(accelerator: str, weight_dtype: str, experts: bool) -> ServerKind:
    """The kind of a server, by the catalogue name of its accelerator."""
    family = next((name for name, starts in FAMILIES.items() if accelerator.startswith(starts)), ANY)
    bits = {"bfloat16": "16-bit", "float16": "16-bit", "fp8": "8-bit", "int8": "8-bit"}.get(weight_dtype, "4-bit")
    return ServerKind(family, "32-bit" if weight_dtype == "float32" else bits, "experts" if experts else "dense")


def stated_errors(kind: ServerKind) -> dict[str, StatedError]:
    """By figure, the error over the nearest kind with enough facts."""
    known = _known()
    found = {}
    for figure in FIGURES:
        for each in kind.wider():
            facts, median = known.get((each, figure), (0, 0.0))
            if facts >= ENOUGH:
                found[figure] = StatedError(median, facts, each)
                break
    return found


def stated_sentence(accelerator: str, weight_dtype: str, experts: bool) -> str:
    """The errors of the nearest measured servers in a sentence, a clause for each kind that stands in."""
    errors = stated_errors(kind_of_server(accelerator, weight_dtype, experts))
    kinds = dict.fromkeys(each.kind for each in errors.values())
    clauses = []
    for kind in kinds:
        figures = [
            f"{name} {100 * each.median:.0f} % (n {each.facts})" for name, each in errors.items() if each.kind == kind
        ]
        clauses.append(f"{', '.join(figures)} over {kind.told()}")
    return f"{'; '.join(clauses)}: medians against measured servers"


@cache
def _known() -> Mapping[tuple[ServerKind, str], tuple[int, float]]:
    with FILE.open(newline="", encoding="utf-8") as file:
        return {
            (ServerKind(row["family"], row["weights"], row["model"]), row["figure"]): (
                int(row["facts"]),
                float(row["median"]),
            )
            for row in csv.DictReader(file)
        }
