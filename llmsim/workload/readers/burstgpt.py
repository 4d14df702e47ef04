"""BurstGPT traces (Wang et al., 2024, github.com/HPMLL/BurstGPT): seconds since midnight of the first day.

0 response tokens mark a failed request; the published files "without fails" have none. Older files have no
sessions.
"""

from llmsim.workload.readers.columns import Column, ColumnFormat
from llmsim.workload.readers.fields import SECONDS, TOKENS, Labels

BURSTGPT = ColumnFormat(
    name="burstgpt",
    columns=(
        Column("Timestamp", "arrival_ns", SECONDS),
        Column("Request tokens", "prompt_tokens", TOKENS),
        Column("Response tokens", "output_tokens", TOKENS),
        Column("Model", "client", Labels(), needed=False),
        Column("Session ID", "session", Labels(empty=-1), needed=False),
    ),
)
