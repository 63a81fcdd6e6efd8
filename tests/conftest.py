"""Options of the whole suite."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

_TESTS = Path(__file__).parent
_FIRST = (
    "sim/test_sim_seeds.py",
    "chaos/test_track_record.py",
    "chaos/test_nemeses.py",
    "sim/test_whole.py",
    "cluster/test_scripts.py",
    "spark/test_spark_jobs.py",
    "spark/test_spark_source.py",
    "cluster/test_node_process.py",
    "cluster/test_attacks.py",
    "cluster/test_random_faults.py",
    "cluster/test_rolling_upgrade.py",
    "cluster/test_large_pages.py",
    "spark/test_spark_sink.py",
    "chaos/test_power.py",
    "cluster/test_splits.py",
)
"""The files that take longest, and the simulators, before all others: a long file that begins last
keeps one core busy while the others have nothing to do."""
_THEN = ("cluster", "chaos", "spark", "sim", "golden", "unit")
"""The folders, those of long tests first."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Order the files of tests; the tests of a file keep their order."""
    ranks = {_TESTS / name: rank for rank, name in enumerate(_FIRST)}

    def rank(item: pytest.Item) -> tuple[int, int]:
        folder = item.path.relative_to(_TESTS).parts[0]
        return ranks.get(item.path, len(ranks)), _THEN.index(folder)

    items.sort(key=rank)


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
