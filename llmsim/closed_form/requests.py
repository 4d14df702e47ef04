"""One request, two that race, and a conversation that sends its history again."""

from typing import NamedTuple


def latency_s(ttft_s: float, tpot_s: float, output_tokens: float) -> float:
    """End-to-end latency: the first token, then a TPOT for each of the others."""
    return ttft_s + (output_tokens - 1) * tpot_s


def reading_tokens_per_s(words_per_minute: float = 250.0, words_per_token: float = 0.75) -> float:
    """How fast a person reads, in tokens a second.

    Adults read English non-fiction at 238 words a minute on average (Brysbaert, "How many words do we read per
    minute?", Journal of Memory and Language 109, 2019), here rounded up; 3/4 of a word a token is OpenAI's rule of
    thumb.
    """
    return words_per_minute / 60 / words_per_token


def crossover_ratio(first: tuple[int, int], second: tuple[int, int]) -> float:
    """The prefill rate over decode rate above which ``first`` finishes before ``second``; each is (prompt, output).

    Alone on an engine that computes R_p prompt tokens and R_d output tokens a second, a request takes p/R_p +
    (o-1)/R_d; both are equal at R_p/R_d = (p1 - p2) / (o2 - o1).

    Raises:
        ValueError: unless ``first`` has the longer prompt and the shorter output, where one of them always wins.
    """
    if first[0] <= second[0] or first[1] >= second[1]:
        raise ValueError(f"{first} needs a longer prompt and a shorter output than {second}")
    return (first[0] - second[0]) / (second[1] - first[1])


class Conversation(NamedTuple):
    """Tokens of a chat that sends all that was said before with each turn."""

    prompt_tokens: int
    """Over all turns: what is prefilled without a prefix cache."""
    new_tokens: int
    """Of those, what the user wrote."""
    output_tokens: int
    last_prompt_tokens: int
    """Of the last turn."""

    @property
    def factor(self) -> float:
        """Prompt tokens for each new one."""
        return self.prompt_tokens / self.new_tokens


def conversation(turns: int, user_tokens: int, answer_tokens: int) -> Conversation:
    """A chat of so many turns of the same lengths: T*u + (u+a)*T*(T-1)/2 prompt tokens, quadratic in the turns."""
    history = (user_tokens + answer_tokens) * turns * (turns - 1) // 2
    last = user_tokens + (user_tokens + answer_tokens) * (turns - 1)
    return Conversation(turns * user_tokens + history, turns * user_tokens, turns * answer_tokens, last)
