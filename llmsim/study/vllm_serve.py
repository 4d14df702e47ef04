"""``vllm serve`` and scenarios, both ways: what one runs becomes a scenario, what was found becomes a command."""

import json
import shlex
from collections.abc import Iterator
from typing import Any, NamedTuple

from llmsim.catalog import entry, find
from llmsim.engine.vllm import VllmScheduler
from llmsim.errors import ScenarioError
from llmsim.scenario import Pool, Scenario

FLAGS: dict[str, str] = {
    "tensor-parallel-size": "tensor_parallel_size",
    "pipeline-parallel-size": "pipeline_parallel_size",
    "data-parallel-size": "data_parallel_size",
    "enable-expert-parallel": "enable_expert_parallel",
    "dtype": "dtype",
    "quantization": "quantization",
    "kv-cache-dtype": "kv_cache_dtype",
    "max-model-len": "max_model_len",
    "num-gpu-blocks-override": "num_gpu_blocks_override",
    "gpu-memory-utilization": "engine.gpu_memory_utilization",
    "block-size": "engine.block_size",
    "enable-prefix-caching": "engine.enable_prefix_caching",
    "max-num-seqs": "engine.scheduler.max_num_seqs",
    "max-num-batched-tokens": "engine.scheduler.max_num_batched_tokens",
    "enable-chunked-prefill": "engine.scheduler.enable_chunked_prefill",
    "long-prefill-token-threshold": "engine.scheduler.long_prefill_token_threshold",
    "scheduling-policy": "engine.scheduler.policy",
    "async-scheduling": "engine.scheduler.async_scheduling",
}
"""vLLM's flags (0.33) by name, and their keys in a pool."""
SHORT = {
    "tp": "tensor-parallel-size",
    "pp": "pipeline-parallel-size",
    "dp": "data-parallel-size",
    "ep": "enable-expert-parallel",
    "q": "quantization",
}
SWITCHES = {"enable-expert-parallel", "enable-prefix-caching", "enable-chunked-prefill", "async-scheduling"}
"""Flags without a value; ``--no-`` before them turns them off."""
HARMLESS = {
    "host",
    "port",
    "api-key",
    "served-model-name",
    "trust-remote-code",
    "download-dir",
    "disable-log-requests",
    "disable-log-stats",
    "disable-uvicorn-access-log",
    "chat-template",
    "revision",
    "seed",
}
"""Flags that change nothing a simulation knows."""
SPELLINGS: dict[str, dict[str, Any]] = {
    "dtype": {"auto": None, "half": "float16", "float": "float32"},
    "kv-cache-dtype": {"fp8_e4m3": "fp8", "fp8_e5m2": "fp8"},
    "quantization": {
        "awq": "int4",
        "awq_marlin": "int4",
        "gptq": "int4",
        "gptq_marlin": "int4",
        "modelopt": "fp8",
        "modelopt_fp4": "nvfp4",
        "fbgemm_fp8": "fp8",
    },
}
"""vLLM's values that have another name, or none, in a scenario."""
_MULTIPLES = {"k": 1000, "K": 1024, "m": 10**6, "M": 1024**2}


class FromCommand(NamedTuple):
    """A scenario file's text, and what of the command is not in it."""

    text: str
    unknown: tuple[str, ...]
    """Flags that llmsim does not simulate, as they were given."""


def scenario_of_command(command: str, *, accelerator: str = "h100-sxm", rate_per_s: float = 1.0) -> FromCommand:
    """The scenario file of a ``vllm serve`` command; accelerator and traffic are not in a command.

    Unknown flags are returned, and stand as comments in the text.

    Raises:
        ScenarioError: when it is no such command, a value is wrong, or the scenario is not possible.
    """
    model, flags = _parsed(command)
    pool: dict[str, Any] = {}
    unknown = []
    for name, value, given in flags:
        if name in FLAGS:
            if (read := _read(name, value, given)) is not None:
                pool[FLAGS[name]] = read
        elif name not in HARMLESS:
            unknown.append(given)
    name = _catalogued(model)
    text = _toml(command, name, accelerator, rate_per_s, pool, unknown)
    _check(text)
    return FromCommand(text, tuple(unknown))


def commands_of_scenario(scenario: Scenario) -> list[str]:
    """A ``vllm serve`` command for each pool; what vLLM has no flag for stands in comments before it."""
    return [command for pool in scenario.pools for command in _command(pool)]


def _parsed(command: str) -> tuple[str, list[tuple[str, str | None, str]]]:
    """The model, and each flag's name, value and text."""
    try:
        words = shlex.split(command.replace("\\\n", " "))
    except ValueError as error:
        raise ScenarioError(f"{command}: cannot be read: {error}") from None
    while words and "=" in words[0] and not words[0].startswith("-"):
        words.pop(0)
    if len(words) < 3 or words[0].rsplit("/", 1)[-1] != "vllm" or words[1] != "serve":
        raise ScenarioError(f"{command}: is no command of the form: vllm serve MODEL --flag value ...")
    model, flags = "", []
    rest = words[2:]
    while rest:
        word = rest.pop(0)
        if not word.startswith("-"):
            model = model or word
            continue
        name, _, value = word.partition("=")
        name = name.lstrip("-").replace("_", "-")
        name = SHORT.get(name, name)
        takes = name.removeprefix("no-") not in SWITCHES and not value
        if takes and rest and not _is_flag(rest[0]):
            value = rest.pop(0)
        given = f"{word} {value}" if takes and value else word
        if name == "model":
            model = value
        else:
            flags.append((name, value or None, given))
    if not model:
        raise ScenarioError(f"{command}: names no model")
    return model, [_switched(*flag) for flag in flags]


def _is_flag(word: str) -> bool:
    return word.startswith("-") and not word[1:2].isdigit()


def _switched(name: str, value: str | None, given: str) -> tuple[str, str | None, str]:
    """A flag that is turned off as the flag with the value false."""
    plain = name.removeprefix("no-")
    return (plain, "false", given) if plain != name and plain in SWITCHES else (name, value, given)


def _read(name: str, value: str | None, given: str) -> Any:
    """The value as a scenario has it; None: the default."""
    if name in SWITCHES:
        return (value or "true").lower() == "true"
    if value is None:
        raise ScenarioError(f"{given}: needs a value")
    if (spellings := SPELLINGS.get(name)) is not None:
        return spellings.get(value, value)
    try:
        if name == "gpu-memory-utilization":
            return float(value)
        if name in ("scheduling-policy",) or value == "auto":
            return value
        if value[-1] in _MULTIPLES:
            return round(float(value[:-1]) * _MULTIPLES[value[-1]])
        return int(value)
    except ValueError:
        raise ScenarioError(f"{given}: {value!r} is no number") from None


def _catalogued(model: str) -> str:
    """The catalogue's name of a model, or the path of its config.json."""
    return model if model.endswith(".json") else find("models", model)


def _toml(
    command: str, model: str, accelerator: str, rate_per_s: float, pool: dict[str, Any], unknown: list[str]
) -> str:
    """The file. Dotted keys of the pool become its tables."""
    tables: dict[str, dict[str, Any]] = {"": {}, "engine": {}, "engine.scheduler": {}}
    for key, value in pool.items():
        table, _, name = key.rpartition(".")
        tables[table][name] = value
    if tables["engine.scheduler"]:
        tables["engine.scheduler"] = {"kind": "vllm", **tables["engine.scheduler"]}
    lines = [f"# How does this serve its traffic? {' '.join(command.split())}"]
    lines += [f"# Not simulated: {flag}" for flag in unknown]
    lines += ["", f'name = "{model} on {accelerator}"', f'model = "{model}"', "", "[[pools]]", 'name = "vllm"']
    lines += [f'accelerator = "{accelerator}"']
    for table, values in tables.items():
        if table and values:
            lines += ["", f"[pools.{table}]"]
        lines += [f"{name} = {json.dumps(value)}" for name, value in values.items()]
    lines += ["", "[workload]", 'kind = "preset"', 'name = "azure-conversation-2023"', f"rate_per_s = {rate_per_s}"]
    return "\n".join([*lines, "requests = 2000", ""])


def _check(text: str) -> None:
    import tomllib

    Scenario.parse(tomllib.loads(text), source="vllm serve")


def _command(pool: Pool) -> Iterator[str]:
    """Comments, then the command."""
    assert pool.model is not None
    scheduler = pool.engine.scheduler
    yield f"# pool {pool.name}: {pool.replicas} of these, each on {pool.deployment().gpus} {pool.accelerator.name}"
    if not isinstance(scheduler, VllmScheduler):
        yield f"# not vLLM's V1 scheduler: {getattr(scheduler, 'kind', type(scheduler).__name__)}"
    if isinstance(scheduler, VllmScheduler) and scheduler.watermark:
        yield f"# no flag for watermark = {scheduler.watermark}"
    defaults = Pool(name=pool.name, accelerator=pool.accelerator)
    plain = {"": defaults, "engine": defaults.engine, "engine.scheduler": VllmScheduler()}
    words = ["vllm", "serve", _hub_name(pool.model.name)]
    for flag, key in FLAGS.items():
        table, _, name = key.rpartition(".")
        owner: Any = {"": pool, "engine": pool.engine, "engine.scheduler": scheduler}[table]
        default = getattr(plain[table], name)
        value = getattr(owner, name, default)
        if value != default:
            words += _flag(flag, value)
    yield shlex.join(words)


def _flag(flag: str, value: Any) -> list[str]:
    if flag in SWITCHES:
        return [f"--{'' if value else 'no-'}{flag}"]
    spelled = {"int4": "awq", "nvfp4": "modelopt_fp4"} if flag == "quantization" else {}
    return [f"--{flag}", str(spelled.get(value, value))]


def _hub_name(model: str) -> str:
    """The model's name on Hugging Face, where the catalogue knows it."""
    try:
        aliases = entry("models", model).get("aliases", ())
    except ScenarioError:
        return model
    return next((alias for alias in aliases if "/" in alias), model)
