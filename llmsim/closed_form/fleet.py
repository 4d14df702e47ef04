"""GPUs and money for a rate of requests: what prefill, decode and memory ask for, each by itself."""

from typing import NamedTuple

from llmsim.closed_form.queues import in_flight
from llmsim.closed_form.saturation import saturated
from llmsim.cost import CostModel
from llmsim.deployment import Deployment, layout


class FleetEstimate(NamedTuple):
    """GPUs for a peak rate, before and after headroom."""

    prefill_gpus: float
    """For prompts, in full iterations."""
    decode_gpus: float
    """For decode steps at the batch given."""
    step_s: float
    """Of decode at that batch."""
    in_flight: float
    """Requests in the system, by Little's law."""
    decoding: float
    """Of those, the ones that decode."""
    kv_bytes: float
    """Keys and values of all in flight, at the mean context."""
    gpus: float
    """With headroom."""

    @property
    def raw_gpus(self) -> float:
        """At full load."""
        return self.prefill_gpus + self.decode_gpus

    def usd_per_day(self, usd_per_hour: float) -> float:
        """With every GPU paid all day."""
        return self.gpus * usd_per_hour * 24


def fleet(
    cost: CostModel,
    deployment: Deployment,
    peak_per_s: float,
    prompt_tokens: int,
    output_tokens: int,
    sequences: int,
    *,
    ttft_s: float = 0.5,
    cached_share: float = 0.0,
    utilisation: float = 0.7,
    spare: float = 1.25,
) -> FleetEstimate:
    """GPUs that serve ``peak_per_s`` requests a second, on engines that decode ``sequences`` at once.

    A prompt costs its part of full iterations, an output token its part of a decode step at the mean context (prompt +
    output / 2); see ``saturated``. ``cached_share`` of prompt tokens is found in a prefix cache, ``utilisation`` is how
    full the fleet may be at peak, ``spare`` what it has beyond that for failures. ``ttft_s`` counts for the requests in
    flight only.
    """
    each = saturated(cost, deployment, prompt_tokens, output_tokens, sequences)
    gpus = deployment.gpus / deployment.data_parallel_size
    decode_s = (output_tokens - 1) * each.decode_step_s
    waiting_and_decoding = in_flight(peak_per_s, ttft_s + decode_s)
    layer = layout.kv_bytes_per_token(deployment) * deployment.tensor_parallel_size
    kv_bytes = deployment.model.attention_layers * layer * (prompt_tokens + output_tokens // 2)
    prefill = peak_per_s * each.prompt_s * (1 - cached_share) * gpus
    decode = peak_per_s * (each.request_s - each.prompt_s) * gpus
    return FleetEstimate(
        prefill_gpus=prefill,
        decode_gpus=decode,
        step_s=each.decode_step_s,
        in_flight=waiting_and_decoding,
        decoding=in_flight(peak_per_s, decode_s),
        kv_bytes=waiting_and_decoding * kv_bytes,
        gpus=(prefill + decode) / utilisation * spare,
    )
