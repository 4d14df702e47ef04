"""Answers, worked out once for all tests that read them."""

from collections.abc import Callable
from functools import cache

import pytest

from llmsim.questions import Asked, ask


@pytest.fixture(scope="session")
def asked() -> Callable[..., Asked]:
    """``ask``, remembering its answers."""
    remembered = cache(ask)
    return lambda number, model=None, accelerator=None: remembered(number, model, accelerator)
