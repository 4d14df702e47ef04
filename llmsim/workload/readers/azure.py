"""Azure LLM inference traces, github.com/Azure/AzurePublicDataset: timestamps of 100 ns, no prefixes.

Those of 2023 go with Patel et al., "Splitwise", ISCA 2024, those of 2024 with Stojkovic et al., "DynamoLLM",
HPCA 2025.
"""

from llmsim.workload.readers.rows import CsvFormat, timestamp

AZURE = CsvFormat(
    name="azure",
    arrival=("TIMESTAMP", timestamp),
    prompt_tokens="ContextTokens",
    output_tokens="GeneratedTokens",
)
