"""Where the memory goes: weights, overheads, the KV pool, and what would make a model fit that does not."""

from llmsim.closed_form import Line, kv_of_token
from llmsim.deployment import Deployment, MemoryLedger, batch_defaults, layout
from llmsim.deployment.memory import concurrency, fullest_groups, fullest_rank
from llmsim.deployment.overheads import overheads
from llmsim.deployment.remedies import remedies
from llmsim.errors import ScenarioError
from llmsim.report.explain.lines import Section


def memory_section(deployment: Deployment, tokens_per_request: int) -> Section:
    """The ledger of the fullest rank; requests of ``tokens_per_request`` tokens are counted into the pool."""
    rank = fullest_rank(deployment)
    section = Section("memory", "MEMORY of each accelerator (the fullest rank)", _weights(deployment, rank))
    section.lines += _ledger(deployment, rank)
    section.lines.append(kv_of_token(deployment, "kv_bytes_per_token", "KV of a token (a TP rank)"))
    if rank.num_gpu_blocks >= 2:
        section.lines += _pool(deployment, rank, tokens_per_request)
    section.lines.append(Line("fits", "fits", float(rank.num_gpu_blocks >= 2)))
    section.notes += _notes(deployment, rank)
    return section


def _weights(deployment: Deployment, rank: MemoryLedger) -> list[Line]:
    model = deployment.model
    parts = next(
        parts
        for stage in layout.stages(deployment)
        if sum((parts := layout.weight_parts(deployment, stage)).values()) == rank.weights_bytes
    )
    counted = {
        "attention_layers": model.attention_layers,
        "attention": model.attention_parameters_per_layer,
        "linear_layers": model.linear_layers,
        "linear": model.linear_parameters_per_layer,
        "dense_layers": model.dense_layers,
        "mlp": model.mlp_parameters_per_layer,
        "moe_layers": model.moe_layers,
        "router": model.router_parameters_per_layer,
        "shared": model.shared_expert_parameters_per_layer,
        "experts": model.moe.num_experts if model.moe else 0,
        "expert": model.expert_parameters,
        "norms": model.norm_parameters,
        "embeddings": model.embedding_parameters + model.lm_head_parameters,
    }
    experts = " + moe_layers * (router + shared + experts * expert)" if model.moe else ""
    linear = " + linear_layers * linear" if model.linear_layers else ""
    formula = f"attention_layers * attention{linear} + dense_layers * mlp{experts} + norms + embeddings"
    return [
        Line("parameters", "parameters of the model", model.parameters, "", formula, counted),
        Line("weights_bytes", "weights of a rank", rank.weights_bytes, "bytes", " + ".join(parts), parts),
    ]


def _ledger(deployment: Deployment, rank: MemoryLedger) -> list[Line]:
    rest = overheads(deployment)
    peak_formula = ""
    if rest.tokens:
        peak_formula = "max(tokens * bytes_per_token, sequences_x_vocabulary * bytes_per_logit)"
    peak = {
        "tokens": rest.tokens,
        "bytes_per_token": rest.token_bytes,
        "sequences_x_vocabulary": rest.logits,
        "bytes_per_logit": rest.logit_bytes,
    }
    share = {"memory": rank.total_bytes, "gpu_memory_utilization": deployment.gpu_memory_utilization}
    requested_formula = "memory * gpu_memory_utilization" if deployment.engine == "vllm" else ""
    pool = {
        "requested": rank.requested_bytes,
        "weights": rank.weights_bytes,
        "activations": rank.activation_bytes,
        "context": rank.non_torch_bytes,
        "graphs": rank.cuda_graph_bytes,
        "state": rank.state_bytes,
    }
    pool_formula = "requested - weights - activations - context - graphs" + " - state" * bool(rank.state_bytes)
    if deployment.num_gpu_blocks_override is not None:
        pool, pool_formula = {"blocks": rank.num_gpu_blocks, "block": rank.block_bytes}, "blocks * block"
    return [
        Line("total_bytes", "memory of the accelerator", rank.total_bytes, "bytes"),
        Line("requested_bytes", "for the engine", rank.requested_bytes, "bytes", requested_formula, share),
        Line("activation_bytes", "activation peak", rank.activation_bytes, "bytes", peak_formula, peak),
        Line("non_torch_bytes", "context and buffers", rank.non_torch_bytes, "bytes"),
        Line("cuda_graph_bytes", "CUDA graphs", rank.cuda_graph_bytes, "bytes"),
        *_state(deployment, rank),
        Line("kv_pool_bytes", "KV pool", rank.kv_pool_bytes, "bytes", pool_formula, pool),
    ]


def _state(deployment: Deployment, rank: MemoryLedger) -> list[Line]:
    """What linear attention keeps of the sequences that run; nothing of models without."""
    if not rank.state_bytes:
        return []
    sequences = deployment.max_num_seqs or batch_defaults(deployment.accelerator)[1]
    terms = {"max_num_seqs": sequences, "state": rank.state_bytes / sequences}
    return [Line("state_bytes", "linear attention state", rank.state_bytes, "bytes", "max_num_seqs * state", terms)]


def _pool(deployment: Deployment, rank: MemoryLedger, tokens: int) -> list[Line]:
    size, groups = rank.block_size, fullest_groups(deployment)
    held = concurrency(deployment, rank, tokens)
    whole: dict[str, float] = {"blocks": rank.num_gpu_blocks, "block_size": size}
    label, formula, each = "tokens in the pool", "blocks * block_size", "requests of {:,} tokens"
    if deployment.model.mixes_windows:
        whole["groups"] = groups.width
        label, formula = "tokens in the pool, at full length", "blocks // groups * block_size"
    if groups.window:
        each = "requests of {:,} tokens, each at its most"
    return [
        Line(
            "num_gpu_blocks",
            "KV blocks",
            rank.num_gpu_blocks,
            "",
            "pool // block",
            {"pool": rank.kv_pool_bytes, "block": rank.block_bytes},
        ),
        Line("kv_tokens", label, rank.num_gpu_blocks // whole.get("groups", 1) * size, "tokens", formula, whole),
        Line(
            "concurrency",
            each.format(tokens),
            held,
            "",
            "blocks / blocks_per_request",
            {"blocks": rank.num_gpu_blocks, "blocks_per_request": rank.num_gpu_blocks / held},
        ),
    ]


def _notes(deployment: Deployment, rank: MemoryLedger) -> list[str]:
    """Why it does not fit and what would; or the assumptions."""
    if rank.num_gpu_blocks < 2:
        lacking = 2 * rank.block_bytes - rank.kv_pool_bytes
        why = (
            f"{deployment.model.name} does not fit on {deployment.accelerator.name}: {lacking / 2**30:,.2f} GiB are "
            f"lacking on each of {deployment.gpus}."
        )
        return [why, *(f"{each}." for each in remedies(deployment)), *rank.notes]
    try:
        return list(deployment.ledger().notes)
    except ScenarioError as error:
        return [f"{error}."]
