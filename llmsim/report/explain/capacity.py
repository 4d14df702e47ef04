"""What a replica can serve: latencies when it is idle, throughput when it is full, and how many a load needs."""

from llmsim.closed_form import Line, decodes, prompts, saturated
from llmsim.deployment import Deployment, batch_defaults
from llmsim.deployment.memory import fullest_groups, fullest_rank
from llmsim.report.explain.lines import Section
from llmsim.report.explain.phases import Priced


def capacity_section(
    priced: Priced, prompt_tokens: int, output_tokens: int, batch: int | None, rate_per_s: float | None
) -> Section:
    """Requests of ``prompt_tokens`` in and ``output_tokens`` out; ``batch``: sequences that decode at once."""
    title = f"CAPACITY of one engine, {prompt_tokens:,} tokens in and {output_tokens:,} out"
    section = Section("capacity", title, _unloaded(priced, prompt_tokens, output_tokens))
    deployment = priced.deployment
    slots, formula, terms = _slots(deployment, prompt_tokens + output_tokens // 2)
    if batch is None:
        section.lines.append(Line("sequences", "sequences at once", slots, "", formula, terms))
    else:
        section.lines.append(Line("sequences", "sequences at once", batch))
        if batch > slots:
            section.notes.append(f"Memory and max_num_seqs hold {slots:,} sequences of this length, not {batch:,}.")
    sequences = int(section["sequences"].value)
    if sequences:
        section.lines += _saturated(priced, prompt_tokens, output_tokens, sequences)
        section.lines += _load(priced, section, prompt_tokens, output_tokens, rate_per_s)
        section.notes.append(
            "The bound has every slot always taken and every iteration full. With random arrivals queues grow before "
            "it: a run shows where."
        )
    return section


def _slots(deployment: Deployment, tokens: int) -> tuple[int, str, dict[str, float]]:
    limit = deployment.max_num_seqs or batch_defaults(deployment.accelerator)[1]
    blocks, needed = fullest_rank(deployment).num_gpu_blocks, fullest_groups(deployment).in_decode(deployment, tokens)
    terms: dict[str, float] = {"max_num_seqs": limit, "blocks": blocks, "blocks_per_request": needed}
    slots = int(max(0, blocks - 1) // needed)
    return min(limit, slots), "min(max_num_seqs, (blocks - 1) // blocks_per_request)", terms


def _unloaded(priced: Priced, prompt_tokens: int, output_tokens: int) -> list[Line]:
    window, request_s = priced.window(), priced.cost.request_s
    prefill = priced.cost.step(prompts(1, prompt_tokens, window=window)).latency_s
    step = priced.cost.step(decodes(1, prompt_tokens + output_tokens // 2, window)).latency_s
    ttft = request_s + prefill
    whole = {"ttft": ttft, "tpot": step, "output": output_tokens}
    return [
        Line(
            "ttft_s",
            "TTFT, nobody else there",
            ttft,
            "s",
            "request + prefill",
            {"request": request_s, "prefill": prefill},
        ),
        Line("tpot_s", "TPOT, nobody else there", step, "s"),
        Line(
            "e2e_s",
            "E2E, nobody else there",
            ttft + (output_tokens - 1) * step,
            "s",
            "ttft + (output - 1) * tpot",
            whole,
        ),
    ]


def _saturated(priced: Priced, prompt_tokens: int, output_tokens: int, sequences: int) -> list[Line]:
    found = saturated(priced.cost, priced.deployment, prompt_tokens, output_tokens, sequences)
    ranks = priced.deployment.data_parallel_size
    request = {
        "prompt": found.prompt_s,
        "output": output_tokens,
        "step": found.decode_step_s,
        "sequences": sequences,
    }
    rate = ranks / found.request_s
    whole, full = {**request, "request_time": found.request_s}, {"ranks": ranks, "request_time": found.request_s}
    spent, tokens = "prompt + (output - 1) * step / sequences", {"rate": rate, "output": output_tokens}
    return [
        Line("prompt_s", "a prompt in full iterations", found.prompt_s, "s"),
        Line("decode_step_s", "a decode step, all slots full", found.decode_step_s, "s"),
        Line("request_s", "engine time of a request", found.request_s, "s", spent, request),
        Line("requests_per_s", "requests a second, at most", rate, "1/s", "ranks / request_time", full),
        Line("output_tokens_per_s", "output tokens a second", rate * output_tokens, "1/s", "rate * output", tokens),
        Line("saturated_tpot_s", "TPOT, full", found.tpot_s, "s", "step / (1 - prompt / request_time)", whole),
    ]


def _load(
    priced: Priced, section: Section, prompt_tokens: int, output_tokens: int, rate_per_s: float | None
) -> list[Line]:
    """Money, and GPUs for a load."""
    deployment, rate = priced.deployment, section["requests_per_s"].value
    lines = []
    if rate_per_s is not None:
        terms = {"load": rate_per_s, "rate": rate, "gpus": deployment.gpus}
        gpus = rate_per_s / rate * deployment.gpus
        lines.append(
            Line("gpus", f"GPUs for {rate_per_s:,g} requests/s, at least", gpus, "", "load / rate * gpus", terms)
        )
    price = deployment.accelerator.price_usd_per_hour
    if price is not None:
        tokens = prompt_tokens + output_tokens
        terms = {"price": price, "gpus": deployment.gpus, "rate": rate, "tokens": tokens}
        million = price * deployment.gpus / 3600 / rate / tokens * 1e6
        formula = "price * gpus / 3600 / rate / tokens * 1e6"
        lines.append(Line("usd_per_million_tokens", "a million tokens, at least", million, "USD", formula, terms))
    return lines
