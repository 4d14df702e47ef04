"""The catalogue for people: each shelf as a table of 80 columns, an entry in full with the source of each number.

Called by the command line. Accelerators, models and workloads are facts in files; schedulers and routers are what the
schema of a scenario allows.
"""

from collections.abc import Iterable, Iterator
from typing import Any, get_args

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from llmsim import catalog
from llmsim.errors import ScenarioError
from llmsim.hardware import AcceleratorSpec, LinkSpec, load_accelerator
from llmsim.model import ModelSpec, load_model
from llmsim.report.trace_text import preset_text
from llmsim.units import GIB, KIB, format_bytes, format_count

Facts = dict[str, Any]

ACCELERATOR_HEADS = ("", "GiB", "bf16", "fp8", "TB/s", "GB/s", "W", "$/hour", "error")
MODEL_HEADS = ("", "size", "active", "layers", "KV KiB", "context", "weights")
LEGEND = {
    "accelerators": (
        "bf16, fp8: dense peak in TFLOP/s; TB/s: memory; GB/s: link to the next, one way; "
        "error: of step times on average, a judgement where efficiencies are not fitted on the accelerator itself."
    ),
    "models": "active: parameters a token uses; KV: of a token, in 16 bit; context: the longest, in tokens.",
}


def entries(shelf: str) -> dict[str, Facts]:
    """All entries of a shelf by name, with all that is known of each."""
    kind = _kind(shelf)
    return {name: catalog.entry(kind, name) for name in catalog.names(kind)} if kind else policies(shelf)


def entry(shelf: str, name: str) -> Facts:
    """All that is known of an entry.

    Raises:
        ScenarioError: if there is none of that name; the message suggests the nearest.
    """
    if kind := _kind(shelf):
        return catalog.entry(kind, name)
    known = policies(shelf)
    plain = name.lower().replace("-", "_").replace(" ", "_")
    if plain not in known:
        near = catalog.suggestion(plain, known) or "."
        raise ScenarioError(f"{shelf.removesuffix('s')} {name!r} is not known{near} Known: {', '.join(known)}.")
    return known[plain]


def policies(shelf: str) -> dict[str, Facts]:
    """What each kind of policy does and its settings, by kind."""
    from llmsim.scenario import scenario_schema

    schema = scenario_schema()
    definitions = schema["$defs"]
    owner = schema if shelf == "routers" else definitions["EngineSpec"]
    field = owner["properties"][shelf.removesuffix("s")]
    found = {}
    for alternative in field.get("oneOf", [field]):
        policy = definitions[alternative["$ref"].rpartition("/")[2]]
        settings = dict(policy["properties"])
        kind = settings.pop("kind")["const"]
        found[kind] = {
            "kind": kind,
            "description": policy["description"],
            "settings": {
                key: {"default": setting.get("default"), "description": setting.get("description", "")}
                for key, setting in settings.items()
            },
        }
    return found


def print_shelves(shelves: Iterable[str], console: Console) -> None:
    """Print what the shelves hold, a table each."""
    for number, shelf in enumerate(shelves):
        if number:
            console.print()
        console.print(Text(shelf, style="bold"))
        console.print(_table(shelf))
        if legend := LEGEND.get(shelf):
            console.print(Text(legend, style="dim"))


def print_entry(shelf: str, name: str, console: Console) -> None:
    """Print an entry in full, numbers with their sources.

    Raises:
        ScenarioError: if there is none of that name; the message suggests the nearest.
    """
    facts = entry(shelf, name)
    if shelf == "accelerators":
        _print_accelerator(facts, load_accelerator(facts["name"]), console)
    elif shelf == "models":
        _print_model(facts, load_model(facts["name"]), console)
    elif shelf == "workloads":
        console.print(Text(preset_text(facts["name"])), soft_wrap=True)
    else:
        console.print(Text("\n".join(_lines(facts))), soft_wrap=True)


def _kind(shelf: str) -> catalog.Kind | None:
    """The kind of catalogue file the shelf holds; None when it holds policies."""
    return next((kind for kind in get_args(catalog.Kind) if kind == shelf), None)


def _table(shelf: str) -> Table:
    if shelf == "accelerators":
        return _rows(ACCELERATOR_HEADS, (_accelerator_row(load_accelerator(name)) for name in catalog.names(shelf)))
    if shelf == "models":
        return _rows(MODEL_HEADS, (_model_row(load_model(name)) for name in catalog.names(shelf)))
    table = Table.grid(padding=(0, 2, 0, 0))
    for name, facts in entries(shelf).items():
        table.add_row(name, Text(facts["description"].partition("\n\n")[0].replace("\n", " ")))
    return table


def _accelerator_row(chip: AcceleratorSpec) -> tuple[str, ...]:
    peaks, efficiency = chip.peak_flop_per_s, chip.efficiency
    error = "" if efficiency.relative_error is None else f"{efficiency.relative_error:.0%}"
    return (
        chip.name,
        f"{chip.memory_bytes / GIB:.1f}",
        f"{peaks['bfloat16'] / 1e12:.0f}",
        f"{peaks['fp8'] / 1e12:.0f}" if "fp8" in peaks else "",
        f"{chip.hbm_bandwidth_bytes_per_s / 1e12:.2f}",
        f"{chip.scale_up.bandwidth_bytes_per_s / 1e9:.0f}",
        f"{chip.power_w:.0f}" if chip.power_w else "",
        "" if chip.price_usd_per_hour is None else f"{chip.price_usd_per_hour:.2f}",
        error,
    )


def _model_row(model: ModelSpec) -> tuple[str, ...]:
    return (
        model.name,
        f"{model.parameters / 1e9:,.1f}B",
        f"{model.active_parameters / 1e9:.1f}B" if model.moe else "",
        str(model.num_hidden_layers),
        f"{model.kv_bytes_per_token() / KIB:,.0f}",
        f"{model.max_position_embeddings:,}",
        model.quantization or model.dtype,
    )


def _rows(heads: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1, 0, 0))
    for position, head in enumerate(heads):
        table.add_column(head, justify="right" if position else "left", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    return table


def _print_accelerator(facts: Facts, chip: AcceleratorSpec, console: Console) -> None:
    _print_title(facts, console)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1, 0, 0))
    table.add_column("", overflow="fold")
    table.add_column("", no_wrap=True)
    table.add_column("source (* two that agree, or the vendor's own)", overflow="fold")
    for key, source in facts["sources"].items():
        mark = "* " if key in facts["verified"] else "  "
        table.add_row(key.removesuffix("_bytes_per_s"), "\n".join(_values(key, facts[key])), Text(mark + source))
    console.print(table)
    efficiency = chip.efficiency
    error = "not known" if efficiency.relative_error is None else f"{efficiency.relative_error:.0%} on average"
    console.print(Text(f"\nefficiencies; error of step times: {error}", style="bold"))
    console.print(Text(" ".join(efficiency.source.split())))
    parameters = catalog.entry("accelerators", efficiency.borrowed_from or chip.name)["efficiency"]
    table = Table.grid(padding=(0, 2, 0, 0))
    for key in (each for each in parameters if each not in ("source", "relative_error")):
        value = getattr(efficiency, key)
        shares = value if isinstance(value, dict) else {"": value}
        table.add_row(key, ", ".join(f"{dtype} {share:g}".strip() for dtype, share in shares.items()))
    console.print(table)


def _print_model(facts: Facts, model: ModelSpec, console: Console) -> None:
    _print_title(facts, console)
    derived = {
        "parameters": f"{model.parameters / 1e9:,.2f}B, computed from the numbers below",
        "active_parameters": f"{model.active_parameters / 1e9:,.2f}B",
        "KV of a token": f"{format_bytes(model.kv_bytes_per_token())} in 16 bit, {model.attention_layers} layers",
    }
    hidden = ("name", "aliases", "source", "verified")
    published = {key: f"{facts[key] / 1e9:g}B" for key in facts if key.startswith("published_")}
    shown = {key: value for key, value in facts.items() if key not in hidden} | published
    console.print(Text("\n".join(_lines(derived | shown))))
    agreed = "two sources agree, or the publisher's own" if facts["verified"] else "one source"
    console.print(Text(f"\nsource ({agreed})", style="bold"))
    console.print(Text(facts["source"]))


def _print_title(facts: Facts, console: Console) -> None:
    console.print(Text(facts["name"], style="bold"))
    console.print(Text("also " + ", ".join(facts["aliases"]), style="dim"))
    console.print()


def _values(key: str, value: Any) -> Iterator[str]:
    """A number of an accelerator for people, one line each."""
    if key == "peak_flop_per_s":
        yield from (f"{dtype} {format_count(flop, 'FLOP/s')}" for dtype, flop in value.items())
    elif isinstance(value, dict):
        link = LinkSpec(**value)
        yield f"{format_count(link.bandwidth_bytes_per_s, 'B/s')} {link.kind}"
    elif key.endswith("_bytes_per_s"):
        yield format_count(value, "B/s")
    elif key.endswith("_bytes"):
        yield format_bytes(value)
    else:
        yield f"{value:g}{' W' if key.endswith('power_w') else ''}"


def _lines(facts: Facts, indent: str = "") -> Iterator[str]:
    """A mapping as indented lines."""
    for key, value in facts.items():
        if isinstance(value, dict):
            yield f"{indent}{key}"
            yield from _lines(value, indent + "  ")
        else:
            yield f"{indent}{key:<28} {value}"
