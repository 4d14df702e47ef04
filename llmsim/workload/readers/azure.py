"""Azure LLM inference traces, github.com/Azure/AzurePublicDataset: timestamps of 100 ns, no prefixes.

Those of 2023 go with Patel et al., "Splitwise", ISCA 2024, those of 2024 with Stojkovic et al., "DynamoLLM",
HPCA 2025; their times may have a zone. Those of 2025, of multimodal models, also count images (``NumImages``),
which are not read: ``ContextTokens`` holds what the model saw.
"""

from llmsim.workload.readers.columns import Column, ColumnFormat
from llmsim.workload.readers.fields import TIMESTAMP, TOKENS

AZURE = ColumnFormat(
    name="azure",
    columns=(
        Column("TIMESTAMP", "arrival_ns", TIMESTAMP),
        Column("ContextTokens", "prompt_tokens", TOKENS),
        Column("GeneratedTokens", "output_tokens", TOKENS),
    ),
)
