"""A summariser takes ages to start and then writes quickly: prefill against decode, and who waits behind it."""

from typing import NamedTuple

from llmsim.closed_form import (
    Line,
    attention_even_tokens,
    attention_share,
    decodes,
    knee_tokens,
    latency_s,
    prompts,
    spent,
    together,
)
from llmsim.engine.vllm import VllmScheduler
from llmsim.questions.answer import Answer, Command, Contrast, Picture, Series
from llmsim.questions.subject import Subject, a_client
from llmsim.questions.worked import bound, decode_line, kernels_reach, mean, request_overhead, time_line
from llmsim.units import format_duration, format_percent

SHORT, DOCUMENT, OUTPUT, QUESTION = 500, 30_000, 300, 30
"""Tokens: of a chat message, a long document, a summary, a second question on the document."""
LENGTHS = (500, 1000, 2000, 4000, 8000, 15_000, 30_000, 60_000, 100_000)
CHATS, CHAT_OUTPUT, CHUNK = 10, 200, 2048


class Loaded(NamedTuple):
    """Chats beside documents."""

    ttft_s: float
    """Mean, of the documents."""
    longest_gap_s: float
    """Between two tokens of a chat."""


def answer(subject: Subject) -> Answer:
    """The answer for a document of 30,000 tokens, or half of what the layout takes."""
    document = min(DOCUMENT, subject.longest // 2)
    arithmetic = _arithmetic(subject, document)
    worked = {line.key: line.value for line in arithmetic}
    contrasts = _contrasts(subject, document, worked)
    return Answer(
        short=_short(subject, document, worked),
        arithmetic=arithmetic,
        contrasts=contrasts,
        pitfalls=(
            "Ask first whether it is slow when idle or under load: a queue looks the same to the user",
            "Streaming does not help: no token exists before the prefill ends",
            "Weights in int4 speed up decode, not prefill: they are multiplied in 16 bit",
            "Chunked prefill helps those who share the GPU with the document, not its own reader",
            "The square in attention matters only from tens of thousands of tokens on",
        ),
        commands=(
            Command(f"llmsim explain {subject.flags} --prompt {document} --only prefill", "Where the prefill goes"),
            Command("llmsim ask 1 --accelerator l4", "On an L4"),
            Command("llmsim ask 14", "What a prefix cache makes of the second question"),
        ),
        pictures=(_picture(subject),),
        notes=(
            f"At load: {CHATS} chats of {SHORT:,} tokens in and {CHAT_OUTPUT:,} out, always one each in flight, beside "
            f"documents of {document:,} tokens, whole or in chunks of {CHUNK:,}",
        ),
    )


def _arithmetic(subject: Subject, document: int) -> tuple[Line, ...]:
    deployment = subject.deployment()
    window = deployment.model.sliding_window
    short, long = prompts(1, SHORT, window=window), prompts(1, document, window=window)
    flop, share = _flop(subject, document), attention_share(deployment, document)
    terms = {"flop_of_attention": flop.value * share, "flop": flop.value}
    prefill = time_line("prefill_s", f"prefill of {document:,} tokens", deployment, long)
    step = decode_line("tpot_s", f"a token at {document:,} of context", deployment, 1, document)
    e2e = latency_s(prefill.value, step.value, OUTPUT)
    whole = {"prefill": prefill.value, "step": step.value, "output": OUTPUT}
    lines = [
        flop,
        Line("attention_share", "of it attention", share, "share", "flop_of_attention / flop", terms),
        time_line("short_prefill_s", f"prefill of {SHORT:,} tokens", deployment, short),
        prefill,
        decode_line("short_tpot_s", f"a token at {SHORT:,} of context", deployment, 1, SHORT),
        step,
        Line(
            "ttft_share",
            f"TTFT's share of a summary of {OUTPUT:,} tokens",
            prefill.value / e2e,
            "share",
            "prefill / (prefill + (output - 1) * step)",
            whole,
        ),
    ]
    knee, even = knee_tokens(subject.envelope()), attention_even_tokens(deployment)
    if knee is not None:
        lines.append(Line("knee_tokens", "prompts bound by compute from (tokens)", knee, "tokens"))
    if even is not None:
        lines.append(Line("attention_even_tokens", "attention = all other FLOPs at (tokens)", even, "tokens"))
    return tuple(lines)


def _flop(subject: Subject, document: int) -> Line:
    """Of a prompt: the matrices' and attention's."""
    batch = prompts(1, document, window=subject.model.sliding_window)
    share = attention_share(subject.deployment(), document)
    flop = spent(subject.envelope(), batch).flop * subject.gpus
    terms = {
        "parameters": flop * (1 - share) / document / 2,
        "tokens": document,
        "flop_per_pair": flop * share / batch.prefill_pairs,
        "pairs": batch.prefill_pairs,
    }
    formula = "2 * parameters * tokens + flop_per_pair * pairs"
    return Line("flop", f"FLOPs of a prompt of {document:,}", flop, "FLOP", formula, terms)


def _contrasts(subject: Subject, document: int, worked: dict[str, float]) -> tuple[Contrast, ...]:
    alone, short = subject.alone(document, OUTPUT), subject.alone(SHORT, OUTPUT)
    whole, chunked = (_loaded(subject, document, chunks) for chunks in (False, True))
    cost, window = subject.envelope(), subject.model.sliding_window
    others = decodes(CHATS, SHORT + CHAT_OUTPUT // 2, window)
    at_once = cost.step(together(prompts(1, document, window=window), others)).occupancy_s
    chunks = [
        cost.step(together(prompts(1, min(CHUNK, document - start), start, window), others)).occupancy_s
        for start in range(0, document, CHUNK)
    ]
    again = cost.step(prompts(1, QUESTION, document + OUTPUT, window)).latency_s
    overhead = request_overhead(subject)
    reach = f"{kernels_reach(subject.deployment(), document)}; {overhead} outside the engine"
    step_why = "kernels as fitted, launches and the host, not 0.65 of bandwidth for all"
    return (
        Contrast("ttft", f"TTFT, {document:,} tokens, alone", "s", worked["prefill_s"], mean(alone, "ttft"), reach),
        Contrast("short_ttft", f"TTFT, {SHORT:,} tokens, alone", "s", worked["short_prefill_s"], mean(short, "ttft"),
                 f"{overhead} outside the engine, launches and host"),
        Contrast("tpot", f"TPOT after {document:,}", "s", worked["tpot_s"], mean(alone, "tpot"), step_why),
        Contrast("short_tpot", f"TPOT after {SHORT:,}", "s", worked["short_tpot_s"], mean(short, "tpot"), step_why),
        Contrast("ttft_share", "TTFT's share of E2E", "share", worked["ttft_share"],
                 mean(alone, "ttft") / mean(alone, "e2e"), "follows from the two above"),
        Contrast("again", "TTFT of a second question, cached", "s", again, _second_question(subject, document),
                 f"{overhead} outside the engine and a step are all that is left"),
        Contrast("whole_gap", "chats' longest gap, document whole", "s", at_once, whole.longest_gap_s,
                 "one iteration holds the whole document; all streams stand still"),
        Contrast("chunked_gap", f"the same in chunks of {CHUNK:,}", "s", max(chunks), chunked.longest_gap_s,
                 "an iteration is one chunk beside the decodes"),
        Contrast("whole_ttft", "document's TTFT among the chats, whole", "s", at_once, whole.ttft_s,
                 f"the iteration under way ends first; {reach}"),
        Contrast("chunked_ttft", "the same in chunks", "s", sum(chunks), chunked.ttft_s,
                 "chunks do not help the document itself"),
    )  # fmt: skip


def _second_question(subject: Subject, document: int) -> float:
    """TTFT of a second turn on the same document."""
    reader = a_client(QUESTION, OUTPUT, rate_per_s=1.0, turns={"kind": "fixed", "tokens": 2},
                      first_prompt_tokens={"kind": "fixed", "tokens": document})  # fmt: skip
    requests = subject.run(reader, requests=2).record.requests
    return float(requests["first_token_s"][1] - requests["arrival_s"][1])


def _loaded(subject: Subject, document: int, chunks: bool) -> Loaded:
    scheduler = (
        VllmScheduler(max_num_batched_tokens=CHUNK, max_num_seqs=256)
        if chunks
        else VllmScheduler(enable_chunked_prefill=False)
    )
    pause_s = subject.envelope().step(prompts(1, document)).latency_s
    clients = (
        a_client(SHORT, CHAT_OUTPUT, name="chats", users=CHATS, requests_per_user=12),
        a_client(document, OUTPUT, name="documents", users=1, requests_per_user=3, think_s=pause_s, think_cv=0.0),
    )
    run = subject.run(clients, scheduler=scheduler, max_model_len=document + OUTPUT)
    requests = run.record.requests
    documents = requests["client"] == "documents"
    ttft_s = (requests["first_token_s"] - requests["arrival_s"])[documents]
    return Loaded(float(ttft_s.mean()), float(requests["max_itl_s"][~documents].max()))


def _short(subject: Subject, document: int, worked: dict[str, float]) -> tuple[str, ...]:
    window = subject.model.sliding_window
    limit = bound(subject.deployment(), prompts(1, document, window=window))
    of_step = bound(subject.deployment(), decodes(1, document, window))
    slower = worked["tpot_s"] / worked["short_tpot_s"] - 1
    longer = worked["prefill_s"] / worked["short_prefill_s"]
    return (
        f"Before the first token the whole document is computed (prefill): {document:,} tokens take "
        f"{format_duration(worked['prefill_s'])} here, bound by {limit}, and "
        f"{format_percent(worked['attention_share'])} of the work is attention, which grows with the square of the "
        f"length. Each token after it reads the weights and the KV cache once, bound by {of_step}: "
        f"{format_duration(worked['tpot_s'])}, {format_percent(slower)} more than after {SHORT:,} tokens. So the wait "
        f"grows {longer:.0f} times from {SHORT:,} to {document:,} tokens, the time of a token {1 + slower:.2f} times.",
        "What helps: a prefix cache for the next question on the same document, more compute for prefill (tensor "
        "parallelism, fp8, a faster GPU), less text (retrieval, parts in parallel). Under load, look at the queue "
        "first; chunked prefill protects the other users.",
    )


def _picture(subject: Subject) -> Picture:
    cost, window = subject.envelope(), subject.model.sliding_window
    lengths = [tokens for tokens in LENGTHS if tokens + OUTPUT < subject.model.max_position_embeddings]
    prefill = [cost.step(prompts(1, tokens, window=window)).latency_s for tokens in lengths]
    decode = [(OUTPUT - 1) * cost.step(decodes(1, tokens, window)).latency_s for tokens in lengths]
    served = [tokens for tokens in lengths if tokens + OUTPUT < subject.longest]
    runs = [subject.alone(tokens, OUTPUT) for tokens in served]
    ttft, rest = [mean(run, "ttft") for run in runs], [mean(run, "e2e") - mean(run, "ttft") for run in runs]
    x, dots = tuple(map(float, lengths)), tuple(map(float, served))
    return Picture(
        "The wait and the writing",
        "Lines are the closed form, points simulated requests alone on the engine.",
        "prompt (tokens)",
        "time (s)",
        (
            Series("TTFT", x, tuple(prefill)),
            Series(f"{OUTPUT} tokens of answer", x, tuple(decode)),
            Series("TTFT, simulated", dots, tuple(ttft), "points"),
            Series("answer, simulated", dots, tuple(rest), "points"),
        ),
        log_x=True,
        log_y=True,
    )
