"""The questions people ask of a serving design, as answers that run.

Above the studies and below the report: an answer is plain values (``answer.Answer``) for one model on one accelerator
(``subject.Subject``), worked out by closed form, simulated beside it, and shown by ``llmsim ask``. Each question is a
module of its own with one function, ``answer(subject)``; it is loaded when it is asked.
"""

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

from llmsim.errors import ScenarioError

if TYPE_CHECKING:
    from llmsim.questions.answer import Answer
    from llmsim.questions.subject import Subject


class Question(NamedTuple):
    """A question, and what it is asked of when nothing is said."""

    number: int
    module: str
    text: str
    about: str
    """In one line: what the answer shows."""
    model: str = "llama-3.1-8b"
    accelerator: str = "h100-sxm"
    fp8: bool = False
    """Asked of weights and KV in fp8 where the accelerator has it, with weights in a third of memory at most."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A question with its answer."""

    question: Question
    subject: "Subject"
    answer: "Answer"

    def as_dict(self) -> dict[str, Any]:
        """The answer as JSON values."""
        answer = self.answer
        return {
            "number": self.question.number,
            "question": self.question.text,
            "subject": self.subject.described,
            "notes": [*self.subject.notes, *answer.notes],
            "short": list(answer.short),
            "arithmetic": {line.key: {"label": line.label, **line.as_dict()} for line in answer.arithmetic},
            "contrasts": {each.key: {**each._asdict(), "difference": each.difference} for each in answer.contrasts},
            "pitfalls": list(answer.pitfalls),
            "commands": [each._asdict() for each in answer.commands],
        }


QUESTIONS = (
    Question(
        1,
        "long_documents",
        "A summariser takes ages to start on long documents but then writes quickly. Why, and what helps?",
        "prefill against decode, and the wait of others behind a long prompt",
    ),
    Question(
        2,
        "kv_cache",
        "Design a KV cache: what does it hold, how large is it, and how many requests fit?",
        "bytes a token, the pool, reserving against paging, beams",
    ),
    Question(
        3,
        "two_bounds",
        "Show that decode is bound by memory bandwidth and prefill by compute on a given machine.",
        "roofline, and the proof by halving FLOP/s and bandwidth",
    ),
    Question(
        4,
        "upgrade",
        "An upgrade made prefill of 960 tokens 5 % faster in one run before and one after. Ship it?",
        "luck, pairs of runs, Amdahl, and what a queue makes of 5 %",
    ),
    Question(
        5,
        "race",
        "Request A has 960 tokens in and 10 out, B 16 in and 200 out. Which finishes first? And a chat that resends?",
        "prefill rate over decode rate, cost in a batch, history and prefix caching",
    ),
    Question(
        6,
        "waits",
        "What are the two waits in a streamed chat, and which does streaming make matter most?",
        "TTFT and gaps between tokens under three schedulers",
    ),
    Question(
        7,
        "engine_features",
        "How does vLLM run a decoder-only model efficiently?",
        "static, continuous, paged, chunked, prefix cached: one at a time",
    ),
    Question(
        8,
        "daily_users",
        "Design serving for 100 million daily users.",
        "GPUs for prefill, decode and memory, headroom, money",
        model="llama-3.1-70b",
        fp8=True,
    ),
    Question(
        9,
        "users_per_gpu",
        "How many users does one GPU serve?",
        "throughput within the SLO, and Little's law with thinking users",
    ),
    Question(
        10,
        "parallelism",
        "More tensor parallelism or more replicas: what should the next GPUs be?",
        "the same GPUs as one wide engine and as several",
    ),
    Question(
        11,
        "saturation",
        "Why does TTFT explode near saturation?",
        "the wait for a slot over load, by queueing theory and by simulation",
    ),
    Question(
        12,
        "token_budget",
        "What does max_num_batched_tokens do, and how should it be set?",
        "chunks of prompts against gaps between tokens",
    ),
    Question(
        13,
        "precision",
        "Quantize to fp8 or int4 weights, or the KV cache to fp8: what does each buy?",
        "prefill, decode, memory and throughput of each",
    ),
    Question(
        14,
        "prefix_caching",
        "How much does prefix caching save?",
        "hits, TTFT and throughput with a shared system prompt",
    ),
    Question(
        15,
        "reasoning",
        "What changes when the model reasons before it answers?",
        "time to the answer, memory and cost of hidden tokens",
    ),
    Question(
        16,
        "experts",
        "Mixture of experts or a dense model?",
        "read and computed bytes of a MoE and a dense model of the same size",
        model="qwen3-30b-a3b",
    ),
    Question(
        17,
        "gpu_per_dollar",
        "Which GPU gives the most tokens per dollar?",
        "cost of a million tokens within a TPOT limit, by GPU",
    ),
    Question(
        18,
        "maximum_concurrency",
        'What does "Maximum concurrency" in vLLM\'s start-up log mean?',
        "a line that is not a limit, and what the limits are",
    ),
    Question(
        19,
        "headroom",
        "How much headroom does a fleet need?",
        "bursts, failures, and TTFT over utilisation",
    ),
)
"""Every question, in order of its number. The first eight are the ones an interviewer asks."""


def ask(number: int, model: str | None = None, accelerator: str | None = None) -> Asked:
    """Answer a question for a model on an accelerator: catalogue names or paths, by default the question's own.

    Raises:
        ScenarioError: for an unknown number or name, or a model that does not fit a node of these accelerators.
    """
    if not 1 <= number <= len(QUESTIONS):
        raise ScenarioError(f"question {number}: there is none; allowed: 1 to {len(QUESTIONS)}")
    question = QUESTIONS[number - 1]
    from llmsim.questions.subject import subject_of

    module = import_module(f"llmsim.questions.{question.module}")
    subject = subject_of(model or question.model, accelerator or question.accelerator, question.fp8)
    return Asked(question, subject, module.answer(subject))
