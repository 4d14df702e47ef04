"""``Deployment``: one engine as its user describes it, with vLLM's names and defaults."""

from typing import Literal

from pydantic import Field, PositiveInt

from llmsim.deployment.memory import MemoryLedger, ledger
from llmsim.errors import ScenarioError
from llmsim.hardware import AcceleratorSpec, LinkSpec
from llmsim.model import Dtype, ModelSpec
from llmsim.specification import specification


@specification
class Deployment:
    """One engine: a model on ``gpus`` accelerators, with the settings that decide its memory and its
    operators."""

    model: ModelSpec
    accelerator: AcceleratorSpec
    tensor_parallel_size: PositiveInt = 1
    pipeline_parallel_size: PositiveInt = 1
    data_parallel_size: PositiveInt = 1
    enable_expert_parallel: bool = False
    """Experts are divided over the tensor * data parallel ranks, instead of each being cut into slices."""
    dtype: Literal["float32", "bfloat16", "float16"] | None = None
    """Of activations and unquantized weights; None: the model's."""
    quantization: Dtype | None = None
    """Of the linear layers' weights; None: the model's."""
    kv_cache_dtype: Literal["auto", "bfloat16", "float16", "fp8"] = "auto"
    """auto: that of the activations."""
    gpu_memory_utilization: float = Field(0.92, gt=0, le=1)
    block_size: PositiveInt = 16
    max_num_seqs: PositiveInt | None = None
    """None: vLLM's default for this accelerator. It counts here for the sampler's memory."""
    max_num_batched_tokens: PositiveInt | None = None
    """None: vLLM's default for this accelerator. It counts here for the activations' memory."""
    max_model_len: PositiveInt | Literal["auto"] = "auto"
    """auto: the smaller of the model's and what the KV pool holds."""
    allow_long_max_model_len: bool = False
    """Accept an explicit max_model_len that the KV pool cannot hold, which a real server refuses to start
    with."""
    num_gpu_blocks_override: int | None = Field(None, ge=2)
    """Replaces the computed pool, null block included; memory is then not checked."""
    kv_overhead_bytes: float | None = Field(None, ge=0)
    """Replaces the estimate of all that is neither weights nor KV: activations, context and buffers, CUDA
    graphs."""
    enable_chunked_prefill: bool = True
    enforce_eager: bool = False
    """No CUDA graphs."""
    async_scheduling: bool = True
    """The host schedules an iteration while the one before it runs."""
    draft_layers: int = Field(0, ge=0)
    """Decoder layers of a speculative draft head (EAGLE: 1): they hold weights and KV like the model's own."""
    engine: Literal["vllm", "sglang", "tensorrt-llm"] = "vllm"
    """Whose rules size the KV pool."""
    engine_version: str = Field("0.33", pattern=r"^\d+\.\d+")
    """Version of vLLM whose memory overheads, sampler and host times to assume."""
    sampling: Literal["greedy", "top_p"] = "greedy"
    """How tokens are chosen. top_p: at random among the likeliest; top-k costs the same."""
    mem_fraction_static: float | None = Field(None, gt=0, le=1)
    """SGLang: share of memory for weights and KV; None: its default."""
    free_gpu_memory_fraction: float = Field(0.9, gt=0, le=1)
    """TensorRT-LLM: share for KV of the memory that weights and activations leave free."""

    @property
    def gpus(self) -> int:
        """Accelerators of one engine."""
        return self.tensor_parallel_size * self.pipeline_parallel_size * self.data_parallel_size

    @property
    def expert_parallel_size(self) -> int:
        """Ranks the experts are divided over; 1 without expert parallelism."""
        return self.tensor_parallel_size * self.data_parallel_size if self.enable_expert_parallel else 1

    @property
    def expert_tensor_parallel_size(self) -> int:
        """Ranks each expert is cut into slices over; 1 with expert parallelism."""
        return 1 if self.enable_expert_parallel else self.tensor_parallel_size

    @property
    def activation_dtype(self) -> Dtype:
        """Of activations and of weights that are not quantized."""
        return self.dtype or self.model.dtype

    @property
    def weight_dtype(self) -> Dtype:
        """Of quantized weights: all linear layers', or the routed experts'
        (``ModelSpec.quantized_layers``)."""
        return self.quantization or self.model.quantization or self.activation_dtype

    @property
    def linear_dtype(self) -> Dtype:
        """Of the linear layers' weights outside the routed experts."""
        return self.activation_dtype if self.model.quantized_layers == "experts" else self.weight_dtype

    @property
    def kv_dtype(self) -> Dtype:
        """Of keys and values in memory."""
        return self.activation_dtype if self.kv_cache_dtype == "auto" else self.kv_cache_dtype

    def compute_dtype(self, weight_dtype: Dtype) -> str:
        """In which a product with such weights is computed, as a key of ``peak_flop_per_s``.

        int4 and mxfp4 are weight-only: vLLM's Marlin kernels multiply in 16 bit. fp8, int8 and nvfp4 multiply
        as they are where the accelerator can, otherwise in 16 bit too.
        """
        wanted = {"fp8": "fp8", "int8": "int8", "nvfp4": "fp4", "float32": "float32"}.get(weight_dtype, "bfloat16")
        return wanted if wanted in self.accelerator.peak_flop_per_s else "bfloat16"

    @property
    def peak_flop_per_s(self) -> float:
        """Dense peak of one accelerator in the dtype the linear layers compute in."""
        return self.accelerator.peak_flop_per_s[self.compute_dtype(self.weight_dtype)]

    def link(self, ranks: int) -> LinkSpec:
        """The link that a group of ``ranks`` accelerators of this engine communicates over.

        Raises:
            ScenarioError: if the group is larger than a node and the accelerator has no link between nodes.
        """
        if ranks <= self.accelerator.accelerators_per_node:
            return self.accelerator.scale_up
        if self.accelerator.scale_out is None:
            raise ScenarioError(
                f"{ranks} accelerators communicate, but {self.accelerator.name} has "
                f"{self.accelerator.accelerators_per_node} in a node and no scale_out link is given"
            )
        return self.accelerator.scale_out

    def check(self) -> None:
        """Check that the parallel sizes divide the model.

        Raises:
            ScenarioError: naming the sizes that are allowed.
        """
        size, heads = self.tensor_parallel_size, self.model.num_attention_heads
        allowed = [ranks for ranks in range(1, heads + 1) if self.divides(ranks)]
        if size not in allowed:
            raise ScenarioError(
                f"tensor_parallel_size = {size} does not divide the {heads} attention heads and "
                f"{self.model.num_key_value_heads} KV heads of {self.model.name}; allowed: "
                f"{', '.join(map(str, allowed))}"
            )
        if self.pipeline_parallel_size > self.model.num_hidden_layers:
            raise ScenarioError(
                f"pipeline_parallel_size = {self.pipeline_parallel_size} is more than the "
                f"{self.model.num_hidden_layers} layers of {self.model.name}"
            )

    def divides(self, ranks: int) -> bool:
        """Whether the heads divide into ``ranks``: query heads evenly, KV heads evenly or replicated
        evenly."""
        heads, kv_heads = self.model.num_attention_heads, self.model.num_key_value_heads
        linear = self.model.linear_attention
        if heads % ranks or (linear and linear.num_key_heads % ranks):
            return False
        return self.model.mla is not None or kv_heads % ranks == 0 or ranks % kv_heads == 0

    def ledger(self) -> MemoryLedger:
        """Where the memory goes, and the KV pool that is left.

        Raises:
            ScenarioError: if the model does not fit, a parallel size does not divide it, or an explicit
                max_model_len is longer than the pool or the model allows.
        """
        self.check()
        return ledger(self)
