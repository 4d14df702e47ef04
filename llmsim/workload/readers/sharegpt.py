"""ShareGPT conversations: a JSON array of texts without times or token counts.

Tokens are counted by a tokenizer, or estimated at 0.75 words each, OpenAI's rule of thumb for English. Conversations
have no times: ``rate_per_s`` says how often one starts.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from llmsim.errors import ScenarioError
from llmsim.workload.readers.rows import good_rows, trace_table
from llmsim.workload.readers.text import open_text
from llmsim.workload.table import RequestTable

Count = Callable[[str], int]
WORDS_PER_TOKEN = 0.75
_CHARACTERS = 1 << 20
_Pairs = list[tuple[int, int]]
"""New prompt tokens and answer tokens of each turn."""


def count_words(text: str) -> int:
    """Tokens of a text at ``WORDS_PER_TOKEN``."""
    return round(len(text.split()) / WORDS_PER_TOKEN)


@dataclass(frozen=True, slots=True)
class ShareGptFormat:
    """A JSON array of conversations."""

    name: str = "sharegpt"
    first_turn_only: bool = False
    """As vLLM's benchmark samples: the first question and its answer, at least 4 tokens each, the question at most
    1024 and both together at most 2048."""
    count: Count = count_words
    example: str = (
        '[{"id": "a1", "conversations": [{"from": "human", "value": "hi"}, {"from": "gpt", "value": "yes"}]}]'
    )
    timed: bool = False

    def recognises(self, first_line: str) -> float:
        """Whether the file is a JSON array; vLLM's way of sampling is only used when named."""
        return first_line.startswith("[") and not self.first_turn_only

    def read(self, path: Path, limit: int | None, skip_bad_rows: bool) -> RequestTable:
        """The requests: a conversation is a session of growing prompts; ``limit`` counts conversations."""
        rows: list[tuple[int, ...]] = []
        pieces: list[tuple[int, int, int]] = []
        counts: list[int] = []
        for session, pairs in enumerate(good_rows(path, _items(path), self._pairs, limit, skip_bad_rows)):
            told: list[tuple[int, int, int]] = []
            for turn, (prompt, output) in enumerate(pairs):
                row = len(rows)
                told.append((row, 0, prompt))
                rows.append((sum(piece[2] for piece in told), output, session, row - 1 if turn else -1))
                pieces += told
                counts.append(len(told))
                told.append((-1 - row, 0, output))
        if not rows:
            raise ScenarioError(f"{path}: no conversation has a question with an answer")
        prompts, outputs, sessions, after = np.array(rows, np.int64).T
        stream, start, tokens = np.array(pieces, np.int64).T.copy()
        return trace_table(
            path,
            np.zeros(len(rows), np.int64),
            prompt_tokens=prompts,
            output_tokens=outputs,
            session=sessions,
            after=after,
            segments=(np.concatenate(([0], np.cumsum(counts, dtype=np.int64))), stream, start, tokens),
        )

    def _pairs(self, conversation: Any) -> _Pairs:
        """Tokens of each question with an answer. Raises ValueError for what is no conversation."""
        turns = conversation.get("conversations") if isinstance(conversation, dict) else None
        if not isinstance(turns, list) or not all(isinstance(turn, dict) for turn in turns):
            raise ValueError('has no list "conversations"')
        pairs: _Pairs = []
        asked = 0
        for turn in turns:
            who, text = turn.get("from"), turn.get("value")
            if not isinstance(text, str):
                raise ValueError(f"value {text!r} is not a text")
            tokens = self.count(text)
            if who in ("gpt", "chatgpt", "assistant", "bard", "bing"):
                if asked and tokens:
                    pairs.append((asked, tokens))
                asked = 0
            else:
                asked += tokens
        return [pair for pair in pairs[:1] if _sampled(*pair)] if self.first_turn_only else pairs


def _sampled(prompt: int, output: int) -> bool:
    """Whether vLLM's benchmark takes such a request."""
    return prompt >= 4 and output >= 4 and prompt <= 1024 and prompt + output <= 2048


def tokenizer_count(path: Path) -> Count:
    """Counts tokens with a ``tokenizer.json``. Raises ScenarioError when it or the package tokenizers is absent."""
    try:
        tokenizer = import_module("tokenizers").Tokenizer.from_file(str(path))
    except ImportError:
        raise ScenarioError("tokenizer: needs the package tokenizers (pip install tokenizers)") from None
    except Exception as error:
        raise ScenarioError(f"{path}: not a tokenizer.json: {error}") from None
    return lambda text: len(tokenizer.encode(text, add_special_tokens=False).ids)


def _items(path: Path) -> Iterator[tuple[int, Any]]:
    """The elements of a JSON array with the lines they begin on, read piece by piece.

    Raises ScenarioError where the text is not JSON.
    """
    decode = json.JSONDecoder().raw_decode
    with open_text(path) as file:
        text, line = file.read(_CHARACTERS).lstrip()[1:], 1
        while True:
            rest = text.lstrip(" \t\r\n,")
            line += text.count("\n", 0, len(text) - len(rest))
            if rest.startswith("]"):
                return
            try:
                item, end = decode(rest)
            except json.JSONDecodeError as error:
                if more := file.read(max(_CHARACTERS, len(rest))):
                    text = rest + more
                    continue
                raise ScenarioError(f"{path} line {line + error.lineno - 1}: is not JSON: {error.msg}") from None
            yield line, item
            line += rest.count("\n", 0, end)
            text = rest[end:]


SHAREGPT = ShareGptFormat()
SHAREGPT_VLLM = ShareGptFormat(name="sharegpt-vllm", first_turn_only=True)
