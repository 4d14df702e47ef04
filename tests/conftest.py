"""Fixtures shared by all tests."""

from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent


def pytest_addoption(parser: pytest.Parser) -> None:
    """Where the recorded scheduling decisions are that ``tests/conformance`` replays."""
    parser.addoption(
        "--decisions",
        type=Path,
        default=REPOSITORY / "tests" / "conformance" / "decisions",
        help="folder of recorded decisions of vLLM's scheduler, *.json or *.json.gz",
    )


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of measured servers, recorded decisions and traces beside the repository."""
    folder = REPOSITORY.parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip(f"measured data not found beside the repository: {folder.name} folder is absent")
    return folder
