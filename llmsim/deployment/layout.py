"""Which layers a pipeline stage has, and which weight matrices a tensor parallel rank holds of each.

The one place that cuts a model into shards: memory counts the bytes of these matrices, the cost model their
products.
"""

from typing import TYPE_CHECKING, NamedTuple

from llmsim.model import Dtype, dtype_bytes

if TYPE_CHECKING:
    from llmsim.deployment.specification import Deployment


class Matrix(NamedTuple):
    """A weight matrix as one rank holds it."""

    name: str
    inputs: int
    outputs: int
    dtype: Dtype

    @property
    def weight_bytes(self) -> float:
        """Bytes it takes in memory."""
        return self.inputs * self.outputs * dtype_bytes(self.dtype)


class Stage(NamedTuple):
    """The layers of one pipeline stage."""

    dense_layers: int
    moe_layers: int
    window_layers: float
    """Layers with a sliding window among them: a fraction where the model's do not divide evenly, because a
    specification says how many there are and not which."""
    linear_layers: float
    """Layers with linear attention among them, likewise."""
    first: bool
    last: bool

    @property
    def layers(self) -> int:
        """All its layers."""
        return self.dense_layers + self.moe_layers

    @property
    def full_layers(self) -> float:
        """Layers that attend to the whole context."""
        return self.attention_layers - self.window_layers

    @property
    def attention_layers(self) -> float:
        """Layers that keep keys and values."""
        return self.layers - self.linear_layers


def stages(deployment: "Deployment") -> list[Stage]:
    """The pipeline stages in order. Layers that do not divide evenly go to the last stages but one, as in
    vLLM (``distributed/utils.py``, ``get_pp_indices``)."""
    model, size = deployment.model, deployment.pipeline_parallel_size
    total = model.num_hidden_layers
    counts = [total // size] * size
    for position in range(2, total % size + 2):
        counts[-position] += 1
    dense_left = model.dense_layers
    result = []
    for index, layers in enumerate(counts):
        dense = min(dense_left, layers)
        dense_left -= dense
        window, linear = model.sliding_window_layers * layers / total, model.linear_layers * layers / total
        result.append(Stage(dense, layers - dense, window, linear, index == 0, index == size - 1))
    return result


def kv_heads(deployment: "Deployment") -> int:
    """KV heads of a rank: divided by the tensor parallel size until one is left, then replicated."""
    return max(1, deployment.model.num_key_value_heads // deployment.tensor_parallel_size)


def kv_bytes_per_token(deployment: "Deployment") -> float:
    """KV bytes a token takes in one layer of a rank: K and V of its heads, or the latent vector of MLA, which
    every rank holds whole (DeepSeek-V2, section 2.1)."""
    model, size = deployment.model, dtype_bytes(deployment.kv_dtype)
    if model.mla:
        return (model.mla.kv_lora_rank + model.mla.qk_rope_head_dim) * size
    return 2 * kv_heads(deployment) * model.head_dim * size


def state_bytes(deployment: "Deployment") -> float:
    """Bytes that a sequence keeps in one linear attention layer of a rank, which has its share of the heads."""
    spec = deployment.model.linear_attention
    return spec.state_bytes(deployment.activation_dtype) / deployment.tensor_parallel_size if spec else 0.0


def linear_matrices(deployment: "Deployment") -> list[Matrix]:
    """Projections of one linear attention layer."""
    spec, hidden, ranks = (
        deployment.model.linear_attention,
        deployment.model.hidden_size,
        deployment.tensor_parallel_size,
    )
    if spec is None:
        return []
    dtype = deployment.linear_dtype
    return [
        Matrix("linear_in", hidden, spec.input_width // ranks, dtype),
        Matrix("linear_out", spec.value_width // ranks, hidden, dtype),
    ]


def attention_matrices(deployment: "Deployment") -> list[Matrix]:
    """Projections of one attention layer; fused where engines fuse them."""
    model, ranks = deployment.model, deployment.tensor_parallel_size
    heads, hidden, dtype = model.num_attention_heads // ranks, model.hidden_size, deployment.linear_dtype
    if model.mla is None:
        queries = heads * (1 + model.attention_output_gate)
        width = (queries + 2 * kv_heads(deployment)) * model.head_dim
        return [Matrix("qkv", hidden, width, dtype), Matrix("o", heads * model.head_dim, hidden, dtype)]
    mla = model.mla
    query_width = heads * (mla.qk_nope_head_dim + mla.qk_rope_head_dim)
    latent = mla.kv_lora_rank + mla.qk_rope_head_dim
    output = Matrix("o", heads * mla.v_head_dim, hidden, dtype)
    if not mla.q_lora_rank:
        return [Matrix("q", hidden, query_width, dtype), Matrix("kv_a", hidden, latent, dtype), output]
    return [
        Matrix("qkv_a", hidden, mla.q_lora_rank + latent, dtype),
        Matrix("q_b", mla.q_lora_rank, query_width, dtype),
        output,
    ]


def latent_matrix(deployment: "Deployment") -> Matrix | None:
    """MLA's projection from the latent vector to the keys and values of a rank's heads; None without MLA.

    Prefill multiplies by it; decode absorbs it into queries and outputs (DeepSeek-V2, section 2.1.2).
    """
    mla = deployment.model.mla
    if mla is None:
        return None
    heads = deployment.model.num_attention_heads // deployment.tensor_parallel_size
    width = heads * (mla.qk_nope_head_dim + mla.v_head_dim)
    return Matrix("kv_b", mla.kv_lora_rank, width, deployment.linear_dtype)


def mlp_matrices(deployment: "Deployment", width: int, ranks: int, dtype: Dtype) -> list[Matrix]:
    """Up (with gate, if gated) and down projections of an MLP of ``width`` cut into slices for ``ranks``
    ranks."""
    model, part = deployment.model, max(1, width // ranks)
    up = 2 * part if model.gated_mlp else part
    return [Matrix("up", model.hidden_size, up, dtype), Matrix("down", part, model.hidden_size, dtype)]


def dense_matrices(deployment: "Deployment") -> list[Matrix]:
    """Those of a dense layer's MLP."""
    width, ranks = deployment.model.intermediate_size, deployment.tensor_parallel_size
    return mlp_matrices(deployment, width, ranks, deployment.linear_dtype)


def shared_matrices(deployment: "Deployment") -> list[Matrix]:
    """What every token visits in an MoE layer: the router, which is not cut, and the shared experts."""
    moe = deployment.model.moe
    if moe is None:
        return []
    router = Matrix("router", deployment.model.hidden_size, moe.num_experts, deployment.activation_dtype)
    if not moe.shared_intermediate_size:
        return [router]
    width, ranks = moe.shared_intermediate_size, deployment.tensor_parallel_size
    return [router, *mlp_matrices(deployment, width, ranks, deployment.linear_dtype)]


def expert_matrices(deployment: "Deployment") -> list[Matrix]:
    """Those of one expert, whole or a slice."""
    moe = deployment.model.moe
    if moe is None:
        return []
    width, ranks = moe.moe_intermediate_size, deployment.expert_tensor_parallel_size
    return mlp_matrices(deployment, width, ranks, deployment.weight_dtype)


def head_matrix(deployment: "Deployment") -> Matrix:
    """The LM head (and the embedding) of a rank: never quantized."""
    model, ranks = deployment.model, deployment.tensor_parallel_size
    return Matrix("lm_head", model.hidden_size, -(-model.vocab_size // ranks), deployment.activation_dtype)


def weight_parts(deployment: "Deployment", stage: Stage) -> dict[str, float]:
    """Bytes of the weights of one rank of a stage, by what they are; zero parts are left out."""
    model, moe = deployment.model, deployment.model.moe
    latent = latent_matrix(deployment)
    attention = [*attention_matrices(deployment), *([latent] if latent else [])]
    dense, draft = _bytes(dense_matrices(deployment)), deployment.draft_layers if stage.last else 0
    vectors: float = (stage.layers * model.norms_per_layer + stage.last) * model.hidden_size
    vectors += stage.attention_layers * 2 * model.head_dim * model.qk_norm
    vectors += stage.attention_layers * attention[0].outputs * model.attention_bias
    vectors += stage.first * model.learned_positions * model.hidden_size
    embeddings = stage.first + stage.last
    if embeddings == 2 and model.tie_word_embeddings:
        embeddings = 1
    parts = {
        "attention": stage.attention_layers * _bytes(attention),
        "linear": stage.linear_layers * _bytes(linear_matrices(deployment)),
        "mlp": stage.dense_layers * dense,
        "shared": stage.moe_layers * _bytes(shared_matrices(deployment)),
        "experts": stage.moe_layers * experts_of_rank(deployment) * _bytes(expert_matrices(deployment)) if moe else 0.0,
        "embeddings": embeddings * head_matrix(deployment).weight_bytes,
        "vectors": vectors * dtype_bytes(deployment.activation_dtype),
        "draft": draft * (_bytes(attention) + dense + _bytes([_fusion_matrix(deployment)])),
    }
    return {name: size for name, size in parts.items() if size}


def weights_bytes(deployment: "Deployment", stage: Stage) -> float:
    """Bytes of the weights of one rank of a stage: matrices, biases, norms and embeddings."""
    return sum(weight_parts(deployment, stage).values())


def experts_of_rank(deployment: "Deployment") -> int:
    """Routed experts of a layer that a rank holds, whole or a slice of each."""
    moe = deployment.model.moe
    return -(-moe.num_experts // deployment.expert_parallel_size) if moe else 0


def _fusion_matrix(deployment: "Deployment") -> Matrix:
    """A draft head's projection of the last hidden state and the next token's embedding (EAGLE, arXiv 2401.15077)."""
    hidden = deployment.model.hidden_size
    return Matrix("fusion", 2 * hidden, hidden // deployment.tensor_parallel_size, deployment.activation_dtype)


def _bytes(matrices: list[Matrix]) -> float:
    return sum(matrix.weight_bytes for matrix in matrices)
