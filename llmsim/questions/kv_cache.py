"""Design a KV cache: bytes a token, the pool, how requests share it, and what reserving costs."""

from typing import Any

from llmsim.closed_form import Line, beam_blocks, blocks_of, empty_share, kv_of_token, saturated, sequences_in_pool
from llmsim.engine.orca import OrcaScheduler
from llmsim.engine.settings import SchedulerSpec
from llmsim.engine.vllm import VllmScheduler
from llmsim.questions.answer import Answer, Command, Contrast, Picture, Series
from llmsim.questions.subject import Subject, a_client
from llmsim.units import GIB, format_bytes, format_percent

PROMPT, OUTPUT = 512, 256
RESERVED = 8192
"""Tokens for which a server that does not know the length of answers sets memory aside."""
BLOCK, POOL, SLOTS, REQUESTS = 16, 262_144, 512, 600
BEAM_PROMPT, BEAM_OUTPUT, BEAMS = 960, 200, 4
OVERHEAD_BYTES = 1.2 * GIB
"""Of a GPU, for all that is neither weights nor KV: a rule of thumb."""


def answer(subject: Subject) -> Answer:
    """The answer for requests of 512 tokens in and 256 out."""
    reserved = min(RESERVED, subject.longest)
    arithmetic = _arithmetic(subject, reserved)
    worked = {line.key: line.value for line in arithmetic}
    return Answer(
        short=_short(subject, reserved, worked),
        arithmetic=arithmetic,
        contrasts=_contrasts(subject, reserved, worked),
        pitfalls=(
            "Count KV heads, not query heads, and bytes, not bits",
            "The type of the KV cache is its own setting, beside that of the weights",
            "Mask by each sequence's length, and return the logits of the last position only",
            "Freed blocks stay readable through the prefix cache until reused: count references",
            "Say what happens when the pool runs out: preempt the newest and compute it again, or swap",
            "Memory is of one GPU or of all: tensor parallelism divides KV heads until one is left, then copies them",
        ),
        commands=(
            Command(f"llmsim explain {subject.flags} --only memory", "The memory ledger, line by line"),
            Command(f"llmsim explain {subject.flags} --only memory --kv-cache-dtype fp8", "With KV in fp8"),
            Command("llmsim ask 2 --model llama-2-7b", "A model whose every head keeps keys and values"),
        ),
        pictures=(_picture(),),
        notes=(
            f"Simulated: {REQUESTS} requests at once on {SLOTS} slots and a KV pool of {POOL:,} tokens, whatever fits",
        ),
    )


def _arithmetic(subject: Subject, reserved: int) -> tuple[Line, ...]:
    deployment = subject.deployment()
    ledger = deployment.ledger()
    kv = kv_of_token(deployment, "kv_of_token", "KV of a token, on each GPU")
    share, size = deployment.gpu_memory_utilization, ledger.total_bytes
    pool = share * size - ledger.weights_bytes - OVERHEAD_BYTES
    parts = {"share": share, "memory": size, "weights": ledger.weights_bytes, "overhead": OVERHEAD_BYTES}
    tokens = pool / kv.value
    beams = beam_blocks(BEAM_PROMPT, BEAM_OUTPUT, BEAMS, BLOCK)
    lines = [
        kv,
        Line("pool_bytes", "KV pool of a GPU", pool, "bytes", "share * memory - weights - overhead", parts),
        Line("pool_tokens", "tokens in it", tokens, "tokens", "pool / kv_of_token",
             {"pool": pool, "kv_of_token": kv.value}),
        *_sequences(reserved),
        Line("empty", f"empty in blocks of {BLOCK}, {PROMPT + OUTPUT // 2} tokens",
             empty_share(PROMPT + OUTPUT // 2, BLOCK), "share", "(block - 1) / 2 / (tokens + (block - 1) / 2)",
             {"block": BLOCK, "tokens": PROMPT + OUTPUT // 2}),
        Line("beams_unshared", f"blocks of {BEAMS} beams, {BEAM_PROMPT} in, {BEAM_OUTPUT} out", beams.unshared),
        Line("beams_shared", "the same with the prompt shared", beams.shared, "", "full_blocks + beams * own_blocks",
             {"full_blocks": BEAM_PROMPT // BLOCK, "beams": BEAMS,
              "own_blocks": (beams.shared - BEAM_PROMPT // BLOCK) // BEAMS}),
    ]  # fmt: skip
    return tuple(lines)


def _sequences(reserved: int) -> list[Line]:
    """How many requests fit, by what is set aside for each."""
    ways = (
        ("one_size", f"requests in {POOL:,} tokens, {reserved:,} set aside", reserved),
        ("own_size", "the same, max_tokens of each set aside", PROMPT + OUTPUT),
        ("paged", "the same, paged, at their mean length", PROMPT + OUTPUT // 2),
    )
    return [
        Line(key, label, sequences_in_pool(POOL, tokens, BLOCK), "", "pool // block // blocks",
             {"pool": POOL, "block": BLOCK, "blocks": blocks_of(tokens, BLOCK)})
        for key, label, tokens in ways
    ]  # fmt: skip


def _contrasts(subject: Subject, reserved: int, worked: dict[str, float]) -> tuple[Contrast, ...]:
    ledger = subject.deployment().ledger()
    one, own, paged = (
        _served(subject, OrcaScheduler(max_num_seqs=SLOTS), reserved - PROMPT),
        _served(subject, OrcaScheduler(max_num_seqs=SLOTS), OUTPUT),
        _served(subject, VllmScheduler(max_num_seqs=SLOTS), OUTPUT),
    )
    faster = paged["request_throughput_per_s"] / one["request_throughput_per_s"]
    deployment, cost = subject.deployment(), subject.envelope()
    each_s = [saturated(cost, deployment, PROMPT, OUTPUT, int(worked[key])).request_s for key in ("one_size", "paged")]
    return (
        Contrast("pool", "tokens in the KV pool", "tokens", worked["pool_tokens"], ledger.kv_tokens,
                 f"activations, CUDA graphs and context take {format_bytes(_overhead_bytes(subject))}, not "
                 f"{format_bytes(OVERHEAD_BYTES)}"),
        Contrast("one_size", "at once, one size set aside for all", "", worked["one_size"], one["running"]["max"],
                 "the scheduler admits while whole reservations fit"),
        Contrast("own_size", "at once, own max_tokens set aside", "", worked["own_size"], own["running"]["max"],
                 "a client that knows its length wastes nothing"),
        Contrast("paged", "at once, paged", "", worked["paged"], paged["running"]["max"],
                 f"blocks come as tokens do: more at first, then {paged['preemptions']:,} preemptions"),
        Contrast("faster", "requests/s, paged over one size", "", each_s[0] / each_s[1], faster,
                 "a larger batch shares the reading of weights; prefill and KV grow with it"),
    )  # fmt: skip


def _served(subject: Subject, scheduler: SchedulerSpec, max_tokens: int) -> dict[str, Any]:
    """All requests at once on a pool of ``POOL`` tokens."""
    client = a_client(PROMPT, OUTPUT, users=REQUESTS, requests_per_user=1, max_tokens=max_tokens)
    return subject.summary(client, scheduler=scheduler, num_gpu_blocks_override=subject.blocks_of_pool(POOL))


def _overhead_bytes(subject: Subject) -> float:
    ledger = subject.deployment().ledger()
    return ledger.requested_bytes - ledger.weights_bytes - ledger.kv_pool_bytes


def _short(subject: Subject, reserved: int, worked: dict[str, float]) -> tuple[str, ...]:
    model = subject.model
    groups = model.num_attention_heads // model.num_key_value_heads
    if model.mla:
        heads = "one compressed vector a layer and token, which every tensor parallel rank holds whole"
    elif groups > 1:
        heads = (
            f"{model.num_key_value_heads} KV heads for {model.num_attention_heads} query heads: {groups} times less "
            "than if every head kept its own"
        )
    else:
        heads = "as many KV heads as query heads"
    gain = worked["paged"] / worked["one_size"]
    return (
        f"For each layer and token keep a key and a value of every KV head; here {heads}. That is "
        f"{format_bytes(worked['kv_of_token'])} a token on each GPU. Prefill writes all positions of the prompt, "
        "decode appends one and attends to the length so far; query heads of a group read the same keys and values.",
        f"Memory that weights leave holds {worked['pool_tokens']:,.0f} tokens. Hand it out in blocks of {BLOCK} tokens "
        f"through a table per sequence: only the last block is partly empty "
        f"({format_percent(worked['empty'])} here), where setting aside {reserved:,} tokens for each request would "
        f"hold {gain:.0f} times fewer. Share full blocks of common prefixes by counting references and copy a block "
        f"on the first write: {BEAMS} beams then take {worked['beams_shared']:.0f} blocks instead of "
        f"{worked['beams_unshared']:.0f}.",
    )


def _picture() -> Picture:
    sizes = (1, 8, 16, 32, 64, 128, 256)
    series = tuple(
        Series(f"{tokens:,} tokens", tuple(map(float, sizes)), tuple(100 * empty_share(tokens, size) for size in sizes))
        for tokens in (256, 640, 4096)
    )
    return Picture(
        "Empty memory by block size",
        "Sequences of three mean lengths. Small blocks waste little; larger ones have shorter tables.",
        "block size (tokens)",
        "empty share of held KV memory (%)",
        series,
        log_x=True,
    )
