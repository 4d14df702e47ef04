"""llmsim's own trace format, to which any log is easily brought: seconds on any clock, and token counts."""

from llmsim.workload.readers.rows import CsvFormat, seconds, whole_number

PLAIN = CsvFormat(
    name="csv",
    arrival=("arrival_s", seconds),
    prompt_tokens="prompt_tokens",
    output_tokens="output_tokens",
    optional=(("max_tokens", whole_number), ("priority", whole_number)),
)
