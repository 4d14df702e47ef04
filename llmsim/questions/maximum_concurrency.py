"""vLLM's "Maximum concurrency" line: how it comes about, and why it is no limit."""

from typing import Any

from llmsim.closed_form import Line
from llmsim.deployment import Deployment, batch_defaults
from llmsim.deployment.memory import fullest_groups
from llmsim.engine.vllm import VllmScheduler
from llmsim.questions.answer import Answer, Command, Contrast, Picture, Series
from llmsim.questions.subject import Subject, a_client
from llmsim.units import format_bytes

PROMPT, OUTPUT, BLOCK, MOST = 1000, 250, 16, 600
"""Tokens of a usual request, of a block, and requests simulated at most."""


def answer(subject: Subject) -> Answer:
    """The answer for requests of 1,000 tokens in and 250 out."""
    arithmetic = _arithmetic(subject)
    worked = {line.key: line.value for line in arithmetic}
    runs = {"slots": _burst(subject, None), "memory": _burst(subject, 256 * BLOCK * 4)}
    return Answer(
        short=_short(subject, worked, runs),
        arithmetic=arithmetic,
        contrasts=_contrasts(subject, worked, runs),
        pitfalls=(
            "It is printed for max_model_len, the longest request there may be; yours are shorter",
            "A lower max_model_len raises the number and changes no capacity",
            "What limits: max_num_seqs, and KV blocks at the lengths that really come",
            "Beyond the blocks nothing fails: requests wait, or the newest is preempted and computed again",
            "With several tensor parallel ranks blocks are of each rank, requests of all together",
        ),
        commands=(
            Command(f"llmsim explain {subject.flags} --only memory --prompt {PROMPT} --output {OUTPUT}", "The ledger"),
            Command(
                f"llmsim explain {subject.flags} --only memory --max-model-len {min(8192, subject.longest)}",
                "The same with another max_model_len",
            ),
            Command(
                "llmsim run scenarios/chat_h100.toml --set pools.num_gpu_blocks_override=1500 --set "
                "pools.max_model_len=16000 --set workload.rate_per_s=10",
                "A pool that runs out: preemptions",
            ),
        ),
        pictures=(_picture(subject),),
        notes=(
            f"Simulated: a burst of up to {MOST} requests of {PROMPT:,} in and {OUTPUT} out, once with the real pool, "
            f"once with one of {256 * BLOCK * 4:,} tokens",
        ),
    )


def _arithmetic(subject: Subject) -> tuple[Line, ...]:
    deployment = subject.deployment()
    ledger = deployment.ledger()
    slots = deployment.max_num_seqs or batch_defaults(subject.accelerator)[1]
    usual = PROMPT + OUTPUT // 2
    held = _held(deployment, ledger.num_gpu_blocks, usual)
    formula = "" if subject.model.mixes_windows else "blocks * block_size / (max_model_len_blocks * block_size)"
    return (
        Line("blocks", "KV blocks", ledger.num_gpu_blocks),
        Line("block_bytes", f"bytes of a block of {BLOCK}", ledger.block_bytes, "bytes"),
        Line("logged", f"the line: for {ledger.max_model_len:,} tokens per request", ledger.max_concurrency, "",
             formula,
             {"blocks": ledger.num_gpu_blocks, "block_size": BLOCK,
              "max_model_len_blocks": -(-ledger.max_model_len // BLOCK)}),
        Line("usual", f"requests of {usual:,} tokens in the pool", held, "", "blocks // blocks_of_request",
             {"blocks": ledger.num_gpu_blocks,
              "blocks_of_request": fullest_groups(deployment).in_decode(deployment, usual)}),
        Line("slots", "max_num_seqs", slots),
        Line("limit", "so at once", min(held, slots), "", "min(usual, slots)", {"usual": held, "slots": slots}),
    )  # fmt: skip


def _held(deployment: Deployment, blocks: int, tokens: int) -> int:
    """Requests of so many tokens that a pool of ``blocks`` holds while they decode."""
    return int(blocks // fullest_groups(deployment).in_decode(deployment, tokens))


def _burst(subject: Subject, pool_tokens: int | None) -> dict[str, Any]:
    override = None if pool_tokens is None else subject.blocks_of_pool(pool_tokens)
    client = a_client(PROMPT, OUTPUT, users=MOST if pool_tokens is None else 100, requests_per_user=1)
    return subject.summary(client, num_gpu_blocks_override=override, scheduler=VllmScheduler())


def _contrasts(subject: Subject, worked: dict[str, float], runs: dict[str, dict[str, Any]]) -> tuple[Contrast, ...]:
    large, small = runs["slots"], runs["memory"]
    tokens = 256 * BLOCK * 4
    held = _held(subject.deployment(), subject.blocks_of_pool(tokens) - 1, PROMPT + OUTPUT // 2)
    return (
        Contrast("line", "running at most, real pool", "", min(worked["limit"], MOST), large["running"]["max"],
                 f"the log line would have said {worked['logged']:.2f}"),
        Contrast("small", f"running at most, {tokens:,} tokens", "", held, small["running"]["max"],
                 "requests begin shorter than their mean, so more start"),
        Contrast("preempted", "preemptions there", "", None, small["preemptions"],
                 "each is computed again from its start: latency, no error"),
        Contrast("finished", "requests finished there", "", 100, small["requests"]["finished"], "nothing is rejected"),
    )  # fmt: skip


def _short(subject: Subject, worked: dict[str, float], runs: dict[str, dict[str, Any]]) -> tuple[str, ...]:
    ledger = subject.deployment().ledger()
    limit = "max_num_seqs" if worked["slots"] <= worked["usual"] else "KV memory"
    return (
        f'"Maximum concurrency for {ledger.max_model_len:,} tokens per request: {worked["logged"]:.2f}x" says how many '
        "requests of the longest allowed length the KV pool would hold. Nothing enforces it. The pool has "
        f"{worked['blocks']:,.0f} blocks of {format_bytes(worked['block_bytes'])}; requests of "
        f"{PROMPT + OUTPUT // 2:,} tokens fit {worked['usual']:,.0f} times, and max_num_seqs is "
        f"{worked['slots']:,.0f}: here {limit} limits, at {worked['limit']:,.0f}.",
        f"Simulated, {runs['slots']['running']['max']:,.0f} ran at once. On a pool of {256 * BLOCK * 4:,} tokens 100 "
        f"requests at once led to {runs['memory']['preemptions']:,} preemptions, and all "
        f"{runs['memory']['requests']['finished']} finished.",
    )


def _picture(subject: Subject) -> Picture:
    ledger = subject.deployment().ledger()
    lengths = [tokens for tokens in (256, 1024, 4096, 16_384, 65_536, 131_072) if tokens <= ledger.max_model_len]
    slots = subject.deployment().max_num_seqs or batch_defaults(subject.accelerator)[1]
    x = tuple(map(float, lengths))
    held = tuple(float(_held(subject.deployment(), ledger.num_gpu_blocks, tokens)) for tokens in lengths)
    return Picture(
        "Requests that fit, by their length",
        "Closed form. The log line is the point at max_model_len.",
        "tokens of a request",
        "requests at once",
        (Series("KV pool", x, held), Series("max_num_seqs", x, tuple(float(slots) for _ in lengths))),
        log_x=True,
        log_y=True,
    )
