"""Every model of the catalogue on every accelerator: a ledger that fits, or the smallest engine that would."""

import re
import time
from functools import cache

import pytest

from llmsim import catalog
from llmsim.deployment import Deployment
from llmsim.errors import ScenarioError
from llmsim.hardware import load_accelerator
from llmsim.model import load_model

WOULD_FIT = re.compile(r"tensor_parallel_size = (\d+)(?: with pipeline_parallel_size = (\d+))? would fit")


def a_deployment(model: str, accelerator: str, tensor: int = 1, pipeline: int = 1) -> Deployment:
    return Deployment(
        model=load_model(model),
        accelerator=load_accelerator(accelerator),
        tensor_parallel_size=tensor,
        pipeline_parallel_size=pipeline,
    )


@cache
def answers() -> tuple[dict[tuple[str, str], tuple[int, int]], float]:
    """The sizes that fit for each pair, and the CPU time of asking for all, by the ledger's own word."""
    models = [load_model(name) for name in catalog.names("models")]
    accelerators = [load_accelerator(name) for name in catalog.names("accelerators")]
    found, start_s = {}, time.process_time()
    for model in models:
        for accelerator in accelerators:
            try:
                ledger = Deployment(model=model, accelerator=accelerator).ledger()
                assert ledger.num_gpu_blocks >= 2
                sizes = (1, 1)
            except ScenarioError as error:
                named = WOULD_FIT.search(str(error))
                assert named, error
                sizes = (int(named[1]), int(named[2] or 1))
            found[model.name, accelerator.name] = sizes
    return found, time.process_time() - start_s


def test_every_pair_fits_or_says_what_would_in_under_two_seconds_for_all() -> None:
    found, cpu_s = answers()
    assert len(found) == len(catalog.names("models")) * len(catalog.names("accelerators"))
    assert cpu_s < 2.0


@pytest.mark.parametrize("model", ["llama-3.1-8b", "llama-3.3-70b", "deepseek-r1", "opt-66b", "falcon-7b"])
def test_the_size_it_names_fits_and_half_of_it_does_not(model: str) -> None:
    for (name, accelerator), (tensor, pipeline) in answers()[0].items():
        if name != model or (tensor, pipeline) == (1, 1):
            continue
        a_deployment(model, accelerator, tensor, pipeline).ledger()
        smaller = (tensor, pipeline - 1) if pipeline > 1 else (tensor // 2, 1)
        with pytest.raises(ScenarioError, match="does not fit"):
            a_deployment(model, accelerator, *smaller).ledger()


def test_known_answers() -> None:
    """What people run: an 8B on one GPU of 24 GB and more, a 70B on two of 80 GB, DeepSeek-R1 on eight H200."""
    found = answers()[0]
    assert found["llama-3.1-8b", "l4"] == (1, 1)
    assert found["llama-3.1-70b", "h100-sxm"] == (2, 1)
    assert found["llama-3.1-70b", "h200-sxm"] in ((1, 1), (2, 1))
    assert found["deepseek-r1", "h200-sxm"] == (8, 1)
    assert found["deepseek-r1", "h100-sxm"] == (8, 2)
