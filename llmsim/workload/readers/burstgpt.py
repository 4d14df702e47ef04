"""BurstGPT traces (Wang et al., 2024, github.com/HPMLL/BurstGPT): seconds since midnight of the first day.

0 response tokens mark a failed request; the published files "without fails" have none.
"""

from llmsim.workload.readers.rows import CsvFormat, seconds

BURSTGPT = CsvFormat(
    name="burstgpt",
    arrival=("Timestamp", seconds),
    prompt_tokens="Request tokens",
    output_tokens="Response tokens",
)
