"""Fixtures shared by all tests."""

from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of measured servers, recorded decisions and traces beside the repository."""
    folder = REPOSITORY.parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip(f"measured data not found beside the repository: {folder.name} folder is absent")
    return folder
