"""Prefill and decode: work, where the roofline bends, and the time with what it is spent on."""

from dataclasses import dataclass

from llmsim.closed_form import EnvelopeCost, Line, Spent, decodes, prompts, spent
from llmsim.cost import AnalyticCost, Batch, CostModel
from llmsim.cost.analytic import AnalyticModel
from llmsim.deployment import Deployment, layout
from llmsim.report.explain.lines import Column, Section, Table
from llmsim.units import format_duration

PROMPTS = (128, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072)
BATCHES = (1, 8, 32, 64, 128, 256, 512, 1024)
CONTEXTS = (512, 2048, 8192, 32768)


@dataclass(frozen=True, slots=True)
class Priced:
    """A deployment and the cost model that prices it."""

    deployment: Deployment
    cost: CostModel
    envelope: EnvelopeCost
    """The constants of the back of the envelope."""
    ideal: bool
    """Whether ``cost`` is that envelope."""

    def window(self) -> int | None:
        """Tokens that windowed layers attend to."""
        return self.deployment.model.sliding_window

    def spent(self, batch: Batch) -> Spent:
        """What one iteration does."""
        return spent(self.cost, batch)


def prefill_section(priced: Priced, prompt_tokens: int) -> Section:
    """One prompt alone, from nothing to its first token."""
    batch = prompts(1, prompt_tokens, window=priced.window())
    section = Section("prefill", f"PREFILL of one prompt of {prompt_tokens:,} tokens, alone", [])
    section.lines = _work(priced, batch)
    section.lines += _times(priced, batch, "prefill_s", "prefill time")
    section.lines += _knees(priced, section)
    section.tables = [*_operators(priced, batch), _prompt_table(priced)]
    section.notes = [] if priced.ideal else [_difference(priced, batch)]
    return section


def decode_section(priced: Priced, sequences: int, context: int, drafted: int = 0) -> Section:
    """One iteration in which every sequence decodes a token, and one that verifies ``drafted`` tokens of each too."""
    batch = decodes(sequences, context, priced.window())
    title = f"DECODE step of {sequences:,} sequence{'s' * (sequences > 1)} at {context:,} tokens of context"
    section = Section("decode", title, [])
    section.lines = _work(priced, batch)
    section.lines += _times(priced, batch, "step_s", "step time")
    step = section["step_s"].value
    terms = {"batch": sequences, "step": step}
    section.lines.append(Line("tokens_per_s", "tokens a second", sequences / step, "1/s", "batch / step", terms))
    if drafted and isinstance(priced.cost, AnalyticModel):
        section.lines += _verification(priced.cost, sequences, context, drafted, step)
    section.tables = [*_operators(priced, batch), _step_table(priced)]
    section.notes = [] if priced.ideal else [_difference(priced, batch)]
    return section


def _work(priced: Priced, batch: Batch) -> list[Line]:
    """FLOPs and bytes that a GPU cannot avoid, and what they need at least."""
    deployment = priced.deployment
    least = spent(AnalyticCost(ideal=True).start(deployment), batch)
    gpus = deployment.tensor_parallel_size * deployment.pipeline_parallel_size
    flop, flop_terms = _flop(deployment, batch)
    kv, kv_terms = _kv(deployment, batch)
    weights = least.hbm_bytes - kv
    peak, hbm = deployment.peak_flop_per_s, deployment.accelerator.hbm_bandwidth_bytes_per_s
    moved = {"weights": weights, **kv_terms}
    pairs = "flop_per_pair * (full_layers * pairs + window_layers * window_pairs)"
    if not deployment.model.sliding_window_layers:
        pairs = "flop_per_pair * layers * pairs"
    if deployment.model.linear_layers:
        pairs += " + linear_layers * flop_of_state * tokens"
    each = " / gpus" if gpus > 1 else ""
    total = f"2 * matrices * tokens + {pairs} + 2 * lm_head * sampled"
    formula = f"({total}){each}" if each else total
    read, share = least.hbm_bytes, flop_terms["attention"] / gpus / flop
    named = {"flop": flop, "bytes": read, "peak": peak, "bandwidth": hbm, "gpus": gpus}
    attention = {**named, "attention": flop_terms["attention"]}
    return [
        Line("flop", "FLOPs of each GPU", flop, "FLOP", formula, flop_terms),
        Line("hbm_bytes", "bytes each GPU must read", read, "bytes", _kv_formula(deployment), moved),
        Line("attention_share", "attention's part of FLOPs", share, "", f"attention{each} / flop", attention),
        Line("intensity", "intensity", flop / read, "FLOP/byte", "flop / bytes", named),
        Line("ridge", "ridge point", peak / hbm, "FLOP/byte", "peak / bandwidth", named),
        Line("compute_floor_s", "FLOPs at peak", flop / peak, "s", "flop / peak", named),
        Line("memory_floor_s", "bytes at full bandwidth", read / hbm, "s", "bytes / bandwidth", named),
    ]


def _flop(deployment: Deployment, batch: Batch) -> tuple[float, dict[str, float]]:
    """FLOPs of a GPU and the numbers they come from: 2 a parameter and token, and attention a query-key pair."""
    model = deployment.model
    embeddings = model.embedding_parameters + model.lm_head_parameters
    bias = (model.num_attention_heads + 2 * model.num_key_value_heads) * model.head_dim * model.attention_bias
    matrices = model.active_parameters - embeddings - model.norm_parameters - bias * model.attention_layers
    tokens = batch.prefill_tokens + batch.decode_sequences
    if model.mla and batch.decode_sequences:
        width = 2 * model.mla.kv_lora_rank + model.mla.qk_rope_head_dim
    elif model.mla:
        width = model.mla.qk_nope_head_dim + model.mla.qk_rope_head_dim + model.mla.v_head_dim
    else:
        width = 2 * model.head_dim
    pairs = batch.prefill_pairs + batch.decode_context_tokens
    window_pairs = batch.prefill_window_pairs + batch.decode_window_tokens
    full_layers = model.attention_layers - model.sliding_window_layers
    linear = model.linear_attention
    of_state = 6 * linear.value_width * linear.key_head_dim if linear else 0
    per_pair = 2 * model.num_attention_heads * width
    attention = per_pair * (full_layers * pairs + model.sliding_window_layers * window_pairs)
    head = model.vocab_size * model.hidden_size
    gpus = deployment.tensor_parallel_size * deployment.pipeline_parallel_size
    terms = {
        "matrices": matrices,
        "tokens": tokens,
        "flop_per_pair": per_pair,
        "layers": model.attention_layers,
        "full_layers": full_layers,
        "window_layers": model.sliding_window_layers,
        "linear_layers": model.linear_layers,
        "flop_of_state": of_state,
        "pairs": pairs,
        "window_pairs": window_pairs,
        "lm_head": head,
        "sampled": batch.sampled,
        "gpus": gpus,
        "attention": attention,
    }
    products = 2 * (matrices * tokens + head * batch.sampled)
    return (products + attention + model.linear_layers * of_state * tokens) / gpus, terms


def _kv(deployment: Deployment, batch: Batch) -> tuple[float, dict[str, float]]:
    """Bytes of keys and values that a GPU reads, and the numbers they come from."""
    model, pipeline = deployment.model, deployment.pipeline_parallel_size
    layer = layout.kv_bytes_per_token(deployment)
    context = batch.prefill_context_tokens + batch.decode_context_tokens
    window = batch.prefill_window_tokens + batch.decode_window_tokens
    full_layers = model.attention_layers - model.sliding_window_layers
    states = 2 * layout.state_bytes(deployment) * (batch.prefill_sequences + batch.decode_sequences)
    terms: dict[str, float] = {
        "kv_of_layer": layer,
        "layers": model.attention_layers,
        "full_layers": full_layers,
        "window_layers": model.sliding_window_layers,
        "linear_layers": model.linear_layers,
        "states": states,
        "context": context,
        "window_context": window,
        "stages": pipeline,
    }
    if model.mla and batch.prefill_tokens:  # keys and values are expanded from what was just computed
        terms["kv_of_layer"] = layer = _expanded_bytes(deployment)
    keys_and_values = layer * (full_layers * context + model.sliding_window_layers * window)
    return (keys_and_values + model.linear_layers * states) / pipeline, terms


def _expanded_bytes(deployment: Deployment) -> float:
    """Of MLA's prefill: latent vectors and expanded keys and values, a token and layer."""
    batch = prompts(1, 2)
    once, twice = (
        spent(AnalyticCost(ideal=True).start(deployment), batch._replace(prefill_context_tokens=tokens)).hbm_bytes
        for tokens in (0, 1)
    )
    return (twice - once) * deployment.pipeline_parallel_size / deployment.model.num_hidden_layers


def _kv_formula(deployment: Deployment) -> str:
    stages = " / stages" if deployment.pipeline_parallel_size > 1 else ""
    kept = f" + linear_layers * states{stages}" if deployment.model.linear_layers else ""
    if deployment.model.sliding_window_layers:
        return f"weights + kv_of_layer * (full_layers * context + window_layers * window_context){stages}{kept}"
    return f"weights + kv_of_layer * layers * context{stages}{kept}"


def _times(priced: Priced, batch: Batch, key: str, label: str) -> list[Line]:
    """The time of the iteration, and the shares of peak and bandwidth it makes use of."""
    deployment = priced.deployment
    step, account = priced.cost.step(batch), priced.spent(batch)
    parts = dict(zip(("compute", "hbm", "links", "overhead"), account[3:], strict=True))
    formula = "max(compute, hbm, links) + overhead" if priced.ideal else "compute + hbm + links + overhead"
    lines = [Line(key, label, step.occupancy_s, "s", formula, parts)]
    if deployment.pipeline_parallel_size > 1:
        lines.append(Line(f"latency_{key}", "through all stages", step.latency_s, "s"))
    peak, hbm = deployment.peak_flop_per_s, deployment.accelerator.hbm_bandwidth_bytes_per_s
    seconds = step.occupancy_s
    mfu = {"flop": account.flop, "time": seconds, "peak": peak}
    mbu = {"bytes": account.hbm_bytes, "time": seconds, "bandwidth": hbm}
    lines += [
        Line("mfu", "share of peak FLOP/s", account.flop / (seconds * peak), "", "flop / (time * peak)", mfu),
        Line("mbu", "share of bandwidth", account.hbm_bytes / (seconds * hbm), "", "bytes / (time * bandwidth)", mbu),
    ]
    return lines


def _verification(cost: AnalyticModel, sequences: int, context: int, drafted: int, step: float) -> list[Line]:
    """Speculative decoding: what verifying costs, and how much must be accepted for it to pay; drafting not counted."""
    verify = cost.verify(sequences, drafted + 1, context + drafted)
    terms = {"verify": verify, "step": step, "drafted": drafted}
    return [
        Line("verify_s", f"step that verifies {drafted} drafted tokens", verify, "s"),
        Line("verify_break_even", "accepted a step to break even", verify / step - 1, "", "verify / step - 1", terms),
        Line(
            "verify_best_tpot_s",
            "TPOT if all are accepted",
            verify / (drafted + 1),
            "s",
            "verify / (drafted + 1)",
            terms,
        ),
    ]


def _knees(priced: Priced, section: Section) -> list[Line]:
    """Prompt lengths at which something changes: compute passes the weights' reading, attention passes the matrices."""
    if priced.deployment.model.sliding_window_layers:
        return []
    work, read = section["flop"].terms, section["hbm_bytes"].terms
    names = {key: work[key] for key in ("matrices", "flop_per_pair", "layers", "gpus")}
    names |= {"ridge": section["ridge"].value, "weights": read["weights"]}
    formula = "ridge * weights / (2 * matrices)" + (" * gpus" if work["gpus"] > 1 else "")
    knee = names["ridge"] * names["weights"] / (2 * names["matrices"]) * names["gpus"]
    if priced.ideal:
        names |= {"mfu": priced.envelope.mfu, "mbu": priced.envelope.mbu}
        formula, knee = f"{formula} * mfu / mbu", knee * names["mfu"] / names["mbu"]
    even = 4 * names["matrices"] / (names["flop_per_pair"] * names["layers"])
    return [
        Line("knee_tokens", "compute-bound from", knee, "tokens", formula, names),
        Line(
            "attention_even_tokens",
            "attention = matrices at",
            even,
            "tokens",
            "4 * matrices / (flop_per_pair * layers)",
            names,
        ),
    ]


def _operators(priced: Priced, batch: Batch) -> list[Table]:
    """What each operator does; the ideal adds work up instead."""
    if not isinstance(priced.cost, AnalyticModel):
        return []
    columns = (
        Column("operator", "operator"),
        Column("flop", "FLOPs", "FLOP"),
        Column("hbm_bytes", "HBM bytes", "bytes"),
        Column("link_bytes", "sent", "bytes"),
        Column("seconds", "time", "s"),
        Column("bound", "bound by"),
    )
    rows: list[tuple[float | str | None, ...]] = []
    for name, account in priced.cost.parts(batch).items():
        part = Spent.of(account)
        times = dict(zip(("compute", "HBM", "link", "launch"), part[3:], strict=True))
        if total := sum(times.values()):
            rows.append((name, *part[:3], total, max(times, key=times.__getitem__)))
    title = "Operators of a GPU: runs * (sqrt(compute**2 + memory**2) + launch)"
    return [Table("operators", title, columns, rows)]


def _prompt_table(priced: Priced) -> Table:
    columns = (
        Column("prompt_tokens", "prompt", "tokens"),
        Column("prefill_s", "prefill", "s"),
        Column("tokens_per_s", "tokens/s"),
        Column("mfu", "of peak"),
    )
    longest = priced.deployment.model.max_position_embeddings
    rows: list[tuple[float | str | None, ...]] = []
    for tokens in (each for each in PROMPTS if each <= longest):
        batch = prompts(1, tokens, window=priced.window())
        step = priced.cost.step(batch)
        share = priced.spent(batch).flop / step.occupancy_s / priced.deployment.peak_flop_per_s
        rows.append((tokens, step.latency_s, tokens / step.latency_s, share))
    return Table("prompts", "Prefill time against the length of the prompt", columns, rows)


def _step_table(priced: Priced) -> Table:
    deployment = priced.deployment
    contexts = [each for each in CONTEXTS if each <= deployment.model.max_position_embeddings]
    columns = (
        Column("batch", "batch"),
        *(Column(f"context_{context}_s", f"{context:,} tokens", "s") for context in contexts),
    )
    rows: list[tuple[float | str | None, ...]] = []
    for batch in BATCHES:
        steps = [priced.cost.step(decodes(batch, context, priced.window())).occupancy_s for context in contexts]
        rows.append((batch, *steps))
    return Table("steps", "Step time against batch and context", columns, rows)


def _difference(priced: Priced, batch: Batch) -> str:
    """The envelope's time beside the model's, and where the difference is."""
    envelope, account = priced.envelope, priced.spent(batch)
    rough = envelope.start(priced.deployment).step(batch).occupancy_s
    parallel = priced.deployment.tensor_parallel_size > 1
    reduce = f", {format_duration(envelope.all_reduce_s)} an all-reduce" if parallel else ""
    peak, hbm = priced.deployment.peak_flop_per_s, priced.deployment.accelerator.hbm_bandwidth_bytes_per_s
    sides = []
    if account.compute_s:
        reached = account.flop / peak / account.compute_s
        sides.append(f"compute {format_duration(account.compute_s)} ({reached:.0%} of peak)")
    if account.hbm_s:
        floor = account.hbm_bytes / hbm
        sides.append(f"HBM {format_duration(account.hbm_s)} (all bytes at full bandwidth: {format_duration(floor)})")
    if account.link_s:
        sides.append(f"links {format_duration(account.link_s)}")
    sides.append(f"launches and host {format_duration(account.overhead_s)}")
    return (
        f"The back of the envelope (MFU {envelope.mfu:g}, MBU {envelope.mbu:g}{reduce}) says "
        f"{format_duration(rough)}; the model {format_duration(priced.cost.step(batch).occupancy_s)}: "
        f"{', '.join(sides)}. It counts activations in memory, every launch and exchange, and the host; the envelope "
        "has two shares for all of them."
    )
