"""Options of the whole suite."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rewrite",
        action="store_true",
        help="rewrite the expected output of golden scripts; review the diff",
    )


@pytest.fixture
def rewrite(request: pytest.FixtureRequest) -> bool:
    """Whether golden scripts are rewritten instead of compared."""
    return bool(request.config.getoption("--rewrite"))


@pytest.fixture(scope="module")
def module_path(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Path]:
    """A directory for what the tests of a file share; it is kept if a test of the file failed.

    pytest keeps the directories of modules until the whole run has ended. A cluster of three nodes
    takes 400 MB, so that a whole run would need 16 GB.
    """
    place = tmp_path_factory.mktemp(request.path.stem)
    failed_before = request.session.testsfailed
    yield place
    if request.session.testsfailed == failed_before:
        shutil.rmtree(place, ignore_errors=True)
