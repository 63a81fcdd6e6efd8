"""Options of the whole suite."""

import gc
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

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
    "cluster/test_deploy.py",
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
_SPARK = "tests/spark/"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Order the files of tests; the tests of a file keep their order."""
    ranks = {_TESTS / name: rank for rank, name in enumerate(_FIRST)}

    def rank(item: pytest.Item) -> tuple[int, int]:
        folder = item.path.relative_to(_TESTS).parts[0]
        return ranks.get(item.path, len(ranks)), _THEN.index(folder)

    items.sort(key=rank)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Let one worker run all tests of Spark with one Java.

    The start of Java and its first queries take 13 s of processor time. The tests of any other file
    stay together, as with `--dist loadfile`.
    """
    if config.getoption("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class ByFileOrSpark(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = super()._split_scope(nodeid)
            return _SPARK if file.startswith(_SPARK) else file

    return ByFileOrSpark(config, log)


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


def pytest_collection_finish() -> None:
    """Freeze what there is before the first test, 340,000 objects of modules and tests.

    Otherwise each full garbage collection in a test, and tests make hundreds, takes 0.2 s.
    """
    gc.collect()
    gc.freeze()
