"""Traces of the simulator Vidur (Agrawal et al., MLSys 2024, github.com/microsoft/vidur).

Times are seconds from the start. Its decode tokens count the first output token, as ``output_tokens`` does.
"""

from llmsim.workload.readers.rows import CsvFormat, seconds

VIDUR = CsvFormat(
    name="vidur",
    arrival=("arrived_at", seconds),
    prompt_tokens="num_prefill_tokens",
    output_tokens="num_decode_tokens",
)
