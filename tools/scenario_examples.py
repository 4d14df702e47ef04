"""A short example of each table of a scenario file, for ``write_scenario_reference``. Each is a part that may stand in
a scenario as it is; a test loads them all."""

EXAMPLES = {
    "": """
name = "chat on one H100"
model = "llama-3.1-8b"
seed = 0
""",
    "pools": """
[[pools]]
name = "chat"
accelerator = "h100-sxm"
replicas = 2
tensor_parallel_size = 4
quantization = "fp8"
""",
    "pools.engine": """
[pools.engine]
enable_prefix_caching = false
gpu_memory_utilization = 0.9
""",
    "pools.engine.scheduler": """
[pools.engine]
scheduler = { kind = "vllm", max_num_seqs = 128, max_num_batched_tokens = 2048 }
""",
    "pools.cost": """
[pools.cost]
kind = "linear"
base_s = 7e-3
per_token_s = 20e-6
""",
    "router": """
router = { kind = "session_affinity" }
""",
    "workload": """
[workload]
kind = "preset"
name = "azure-conversation-2023"
rate_per_s = 5.0
requests = 2000
""",
    "workload.columns": """
[workload]
kind = "trace"
path = "mine.csv"
columns = { time = "ms", time_unit = "ms", prompt_tokens = "input", output_tokens = "output" }
""",
    "workload.arrivals": """
[workload]
kind = "trace"
path = "mine.csv"
rate_per_s = 3.0
arrivals = { kind = "gamma", cv = 2.0 }
""",
    "workload.clients": """
[workload]
kind = "clients"
duration_s = 600

[[workload.clients]]
name = "assistant"
rate_per_s = 2.0
prompt_tokens = { kind = "lognormal", mean = 400, p99 = 2000 }
output_tokens = { kind = "lognormal", mean = 200, p99 = 900 }
turns = { kind = "uniform", low = 1, high = 4 }
think_s = 8.0
""",
    "workload.clients.rate_profile": """
[workload]
kind = "clients"
duration_s = 3600

[[workload.clients]]
name = "office"
rate_per_s = 2.0
rate_profile = { kind = "spikes", factor = 3.0, duration_s = 60, every_s = 900 }
prompt_tokens = { kind = "fixed", tokens = 1000 }
output_tokens = { kind = "fixed", tokens = 250 }
""",
    "workload.clients.prompt_tokens": """
[workload]
kind = "clients"
requests = 1000

[[workload.clients]]
name = "documents"
rate_per_s = 0.5
prompt_tokens = { kind = "quantiles", shares = [0, 0.5, 0.9, 1], tokens = [500, 4000, 12000, 30000] }
output_tokens = { kind = "pareto_tail", mean = 300, p99 = 1500, alpha = 2.5, maximum = 8000 }
""",
    "workload.clients.lengths_of": """
[workload]
kind = "clients"
requests = 1000

[[workload.clients]]
name = "like my log, only faster"
rate_per_s = 10.0
lengths_of = { path = "mine.csv", columns = { prompt_tokens = "input", output_tokens = "output" } }
""",
    "slo": """
[slo]
ttft_p99_s = 1.0
tpot_p99_s = 0.05
""",
    "run": """
[run]
horizon_s = 600.0
warm_up_s = 30.0
record = "requests"
""",
}
"""By dotted path."""
