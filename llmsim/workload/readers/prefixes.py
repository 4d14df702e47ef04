"""Sessions, and prompts of which is known how many tokens were seen before, but not which."""

from array import array
from collections.abc import Callable

import numpy as np

from llmsim.workload.table import Ints, Segments


def session_links(session: Ints) -> Ints:
    """For each row the row before it of the same session; -1 for a first row and for rows of session -1."""
    rows = np.lexsort((np.arange(len(session)), session))
    same = (session[rows][1:] == session[rows][:-1]) & (session[rows][1:] >= 0)
    after = np.full(len(session), -1, np.int64)
    after[rows[1:][same]] = rows[:-1][same]
    return after


def cached_segments(prompt_tokens: Ints, output_tokens: Ints, cached_tokens: Ints, group: Ints) -> Segments:
    """Prompts of which ``cached_tokens`` were seen before, as far as that can be.

    Rows are in order of arrival. The cached tokens of a row are the first ones of the last earlier row of its
    ``group`` (a session, or a client) whose prompt and answer are as long as that, or else of the longest of its
    last 64.
    """
    recent: dict[int, list[int]] = {}
    groups, known = group.tolist(), (prompt_tokens + output_tokens).tolist()

    def last_long_enough(row: int, wanted: int) -> int:
        earlier = recent.setdefault(groups[row], [])
        found = next((each for each in reversed(earlier) if known[each] >= wanted), -1)
        if found < 0 and earlier:
            found = max(earlier, key=lambda each: known[each])
        earlier.append(row)
        del earlier[:-64]
        return found

    return reused_segments(prompt_tokens, output_tokens, cached_tokens, last_long_enough)


def reused_segments(
    prompt_tokens: Ints, output_tokens: Ints, reused_tokens: Ints, source: Callable[[int, int], int], common: int = 0
) -> Segments:
    """Prompts that begin with tokens of an earlier prompt and its answer, and go on with their own.

    ``source(row, wanted)`` is asked for each row in turn and names that earlier row, or -1. One token at least is a
    row's own, as in vLLM, which never finds a whole prompt. The first ``common`` tokens are those of every prompt.
    """
    # One flat array: lists of tuples would have Python's garbage collector go through them again and again.
    flat, offsets = array("q"), array("q", [0])
    lengths, outputs = prompt_tokens.tolist(), output_tokens.tolist()
    for row, (prompt, reused) in enumerate(zip(lengths, reused_tokens.tolist(), strict=True)):
        wanted = min(reused, prompt - 1)
        earlier = source(row, wanted)
        taken = 0
        if earlier >= 0 and wanted > 0:
            pieces = flat[offsets[earlier] : offsets[earlier + 1]]
            pieces.extend((-1 - earlier, 0, outputs[earlier]))
            taken = _cut(pieces, wanted)
            flat.extend(pieces)
        elif common and prompt > 1:
            taken = min(common, prompt - 1)
            flat.extend((len(lengths), 0, taken))
        flat.extend((row, taken, prompt - taken))
        offsets.append(len(flat))
    stream, start, tokens = np.array(flat, np.int64).reshape(-1, 3).T.copy()
    return np.array(offsets, np.int64) // 3, stream, start, tokens


def _cut(pieces: "array[int]", wanted: int) -> int:
    """Keep the pieces (stream, start, tokens) of the first ``wanted`` tokens, or all; returns their tokens."""
    taken = 0
    for at in range(2, len(pieces), 3):
        if taken + pieces[at] >= wanted:
            pieces[at] = wanted - taken
            del pieces[at + 1 :]
            return wanted
        taken += pieces[at]
    return taken
