"""One pipeline stage's operators folded into a few numbers: what an iteration costs in a microsecond or two.

What depends on the number of tokens, or of sampled rows, alone is tabulated. A decode kernel's compute and memory times
are linear in the context C, so that its soft maximum is the root of a polynomial, ``sqrt(C*(C*p + q) + r)``, with p, q
and r fixed for a number of sequences.
"""

import math
from typing import NamedTuple

import numpy as np

from llmsim.cost.base import Batch
from llmsim.cost.host import Host
from llmsim.cost.layers import attention_operators, experts_touched, stage_operators
from llmsim.cost.operators import Operator, seconds, total
from llmsim.deployment import Deployment, Stage

_TOKEN_COUNTS = 256
"""Token counts priced at a time, on the first use of one of them."""


class FoldedStage:
    """The iteration times of one pipeline stage, host time included."""

    __slots__ = (
        "_decode_kernels",
        "_decodes",
        "_deployment",
        "_fixed",
        "_heads",
        "_host",
        "_operators",
        "_prefill_kernels",
        "floor_s",
    )

    def __init__(self, deployment: Deployment, stage: Stage, host: Host) -> None:
        self._deployment, self._host = deployment, host
        self._operators = stage_operators(deployment, stage)
        self.floor_s = stage.layers * host.layer_s
        """An iteration takes no less: launching its kernels without CUDA graphs."""
        self._prefill_kernels: list[_Prefill] = []
        self._decode_kernels: list[tuple[float, Operator]] = []
        for layers, (prefill, decode) in attention_operators(deployment, stage):
            self._prefill_kernels += [_prefill(each, layers) for each in prefill]
            self._decode_kernels += [(layers, each) for each in decode]
        self._fixed: dict[int, float] = {}
        self._heads: dict[int, float] = {}
        self._decodes: dict[int, _Decodes] = {}

    def time(self, batch: Batch) -> float:
        """The time of an iteration that is not empty."""
        prefills, new_tokens, _, _, sequences, _, sampled, _, _, _ = batch
        if not prefills and sampled == sequences:
            found = self._decodes.get(sequences) or self._price_decodes(sequences)
            spent = found.base_s
        else:
            tokens = new_tokens + sequences
            spent = self._fixed.get(tokens) or self._price(tokens)
            head = self._heads.get(sampled)
            spent += self._price_head(sampled) if head is None else head
            spent += self._host.waited(prefills, sequences)
            for work, work_s, read, read_s, rows, row_s, fixed_s, launch_s in self._prefill_kernels if prefills else ():
                compute = batch[work] * work_s
                memory = batch[read] * read_s + batch[rows] * row_s + fixed_s
                spent += math.sqrt(compute * compute + memory * memory) + launch_s
            if sequences:
                found = self._decodes.get(sequences) or self._price_decodes(sequences)
                spent += found.kernels_s
        if sequences:
            for context, p, q, r in found.roots:
                tokens = batch[context]
                spent += math.sqrt(tokens * (tokens * p + q) + r)
        return max(spent, self.floor_s + self._host.waited(prefills, sequences)) if self.floor_s else spent

    def _price(self, tokens: int) -> float:
        """The time of what depends on the number of tokens alone; fills in the neighbours too."""
        first = tokens - tokens % _TOKEN_COUNTS
        counts = np.arange(first, first + _TOKEN_COUNTS)
        padded = self._host.padded(counts)
        statistics = {"tokens": padded, "experts": experts_touched(self._deployment, padded)}
        times = seconds(total(each.account(statistics) for each in self._operators.on_tokens))
        self._fixed.update(zip(counts.tolist(), times.tolist(), strict=True))
        return self._fixed[tokens]

    def _price_head(self, sampled: int) -> float:
        """The time of the LM head and the sampler for so many rows."""
        statistics = {"sampled": np.array([sampled]), "tokens": np.array([sampled])}
        listed = self._operators.on_sampled
        price = float(seconds(total(each.account(statistics) for each in listed))[0]) if listed else 0.0
        self._heads[sampled] = price
        return price

    def _price_decodes(self, sequences: int) -> "_Decodes":
        """What iterations of so many decodes have in common."""
        constant, roots = 0.0, []
        for layers, kernel in self._decode_kernels:
            root = _root(kernel, layers, sequences)
            constant += layers * kernel.launch_s
            if root.p or root.q:
                roots.append(root)
            else:
                constant += math.sqrt(root.r)
        fixed = self._fixed.get(sequences) or self._price(sequences)
        head = self._heads.get(sequences)
        head = self._price_head(sequences) if head is None else head
        base = fixed + head + self._host.waited(0, sequences) + constant
        found = self._decodes[sequences] = _Decodes(base, constant, roots)
        return found


class _Root(NamedTuple):
    """A decode kernel's soft maximum over its layers, ``sqrt(C*(C*p + q) + r)`` of the context C."""

    context: int
    """Position in ``Batch``."""
    p: float
    q: float
    r: float


class _Decodes(NamedTuple):
    """Iterations of a number of decodes."""

    base_s: float
    """All but the roots, where nothing else is computed and each decode samples."""
    kernels_s: float
    """Of the decode kernels alone, without the roots."""
    roots: list[_Root]


_CONTEXT = Batch._fields.index("decode_context_tokens")
_Prefill = tuple[int, float, int, float, int, float, float, float]
"""work, its seconds; read, its seconds; rows, their seconds; fixed seconds; launch seconds: over the layers, statistics
as positions in ``Batch``."""


def _prefill(kernel: Operator, layers: float) -> _Prefill:
    return (
        Batch._fields.index(kernel.work),
        layers * (kernel.flop + kernel.tile_flop) / kernel.flop_per_s,
        Batch._fields.index(kernel.read),
        layers * kernel.read_bytes / kernel.bytes_per_s,
        Batch._fields.index(kernel.rows),
        layers * kernel.row_bytes / kernel.bytes_per_s,
        layers * kernel.fixed_bytes / kernel.bytes_per_s,
        layers * kernel.launch_s,
    )


def _root(kernel: Operator, layers: float, sequences: int) -> _Root:
    """Compute c1*C + c0 and memory m1*C + m0: squares added, by powers of C."""
    compute = [0.0, 0.0]
    memory = [0.0, layers * kernel.fixed_bytes / kernel.bytes_per_s]
    context = _CONTEXT
    for side, name, seconds_each in (
        (compute, kernel.work, layers * (kernel.flop + kernel.tile_flop) / kernel.flop_per_s),
        (memory, kernel.read, layers * kernel.read_bytes / kernel.bytes_per_s),
        (memory, kernel.rows, layers * kernel.row_bytes / kernel.bytes_per_s),
    ):
        if name == "decode_sequences":
            side[1] += seconds_each * sequences
        else:
            context = Batch._fields.index(name)
            side[0] += seconds_each
    tail = float(kernel.tail(sequences))
    (c1, c0), (m1, m0) = compute, [tail * side for side in memory]
    return _Root(context, c1 * c1 + m1 * m1, 2 * (c1 * c0 + m1 * m0), c0 * c0 + m0 * m0)
