"""Traces of the simulator Vidur (Agrawal et al., MLSys 2024, github.com/microsoft/vidur).

Times are seconds from the start. Its decode tokens count the first output token, as ``output_tokens`` does.
Its files of lengths alone have no times.
"""

from llmsim.workload.readers.columns import Column, ColumnFormat
from llmsim.workload.readers.fields import SECONDS, TOKENS

_LENGTHS = (
    Column("num_prefill_tokens", "prompt_tokens", TOKENS),
    Column("num_decode_tokens", "output_tokens", TOKENS),
)
VIDUR = ColumnFormat(name="vidur", columns=(Column("arrived_at", "arrival_ns", SECONDS), *_LENGTHS))
VIDUR_LENGTHS = ColumnFormat(name="vidur-lengths", columns=_LENGTHS)
