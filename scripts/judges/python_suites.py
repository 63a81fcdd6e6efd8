"""Tests of Python's clients for Kafka that need a broker, run by pytest.

The packages on PyPI have no tests, so `--source` names a checkout of the client's repository. The
client itself comes from PyPI into an environment of the suite's own.
"""

import re
import shutil
import venv
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Final

from .brokers import must, run
from .suites import Outcome, Suite

_ROW: Final = re.compile(
    r"^(PASSED|FAILED|ERROR|SKIPPED|XFAIL)\s+(\[\d+\] )?(tests/\S+)( - .*)?", re.M
)
"""A test and its outcome; lines of the clients' own log also begin with ERROR."""
_ID: Final = re.compile(r"\S+\.py::")
_TEST_S: Final = 120
_ALL_S: Final = 2_400
_TOOLS: Final = ("pytest", "pytest-asyncio", "pytest-timeout")

_FIRST: Final = "expects that the first record has offset 0"
_TIMES: Final = "expects the timestamp that the producer gave"
_TRANSACTIONS: Final = "needs transactions"
_CONTAINER: Final = "starts a broker of its own, or programs in its container"
_PARTITIONS: Final = "needs more partitions for a topic; a topic keeps their number"
_REBALANCE: Final = "expects another time of a first rebalance; here the first members wait 1 s"
_ONE: Final = "expects a single broker with the number 0"

_CONFLUENT: Final = {
    "producer/test_transactions.py": _TRANSACTIONS,
    "consumer/test_incremental_assign.py": _FIRST,
    "admin/test_list_offsets.py": _FIRST,
    "admin/test_basic_operations.py": _PARTITIONS,
    "test_delete_records_multiple_topics_and_partitions": _FIRST,
    "admin/test_incremental_alter_configs.py": "empties the list cleanup.policy",
    "admin/test_user_scram_credentials.py": "needs users with SCRAM",
    "admin/test_describe_operations.py": _CONTAINER,
}
_AIOKAFKA: Final = {
    "test_create_partitions": _PARTITIONS,
    "test_describe_cluster": _ONE,
    "test_describe_configs_broker": _ONE,
    "test_metadata": _ONE,
    "test_sender__handler_base_do": _ONE,
    "test_check_extended_message_record": _TIMES,
    "test_offsets_for_times_single": _TIMES,
    "test_kafka_consumer_offsets_search_many_partitions": _TIMES,
    "test_producer_correct_time_returned": _TIMES,
    "test_producer_indempotence_no_duplicates": _TIMES,
    "test_producer_leader_change_preserves_order": _TIMES,
    "test_consumer_compacted_topic": _FIRST,
    "test_consumer_position": _FIRST,
    "test_consumer_seek_to_beginning": _FIRST,
    "test_consumer_seek_to_end": _FIRST,
    "test_manual_subscribe_pattern": _FIRST,
    "test_simple_consumer": _FIRST,
    "test_create_producer_no_running_loop": _FIRST,
    "test_producer_send": _FIRST,
    "test_consumer_compressed_returns_older_msgs": "expects batches as the producer sent them",
    "test_consumer_subscribe_pattern_with_autocreate": _REBALANCE,
    "test_max_poll_interval_ms": _REBALANCE,
    "test_exclude_internal_topics": "expects the topic __consumer_offsets",
    "test_ssl_consume": _CONTAINER,
    "test_producer_ssl": _CONTAINER,
    "test_sasl.py": _CONTAINER,
    "test_sender_maybe_wait_for_pid_on_failure": _TRANSACTIONS,
    "test_transactional_consumer.py": _TRANSACTIONS,
    "test_transactional_producer.py": _TRANSACTIONS,
}
_FIXTURES: Final = """

# Added by lognode: a broker that runs already, in place of a container.


@pytest.fixture(scope="session")
def docker():
    return None


@pytest.fixture(scope="session")
def kafka_image(request):
    return request.config.getoption("--docker-image")


@pytest.fixture(scope="session")
def ssl_folder():
    return None


@pytest.fixture(scope="class")
def acl_manager():
    return None


@pytest.fixture(scope="class")
def kafka_config():
    return None


@pytest.fixture(scope="class")
def kerberos_utils():
    return None


@pytest.fixture(scope="session")
def kafka_server():
    host, port = os.environ["BROKERS"].split(",")[0].split(":")
    return KafkaServer(host, int(port), 1, 1, 1, None)


def pytest_collection_modifyitems(config, items):
    left = [item for item in items if "kafka_server" not in item.fixturenames]
    items[:] = [item for item in items if "kafka_server" in item.fixturenames]
    config.hook.pytest_deselected(items=left)
"""
"""aiokafka's tests start a container; tests without a broker are left out."""


def _python(work: Path) -> Path:
    return work / "environment" / "bin" / "python"


def _prepare(
    work: Path, source: Path | None, *, repository: str, packages: tuple[str, ...], package: str,
    added: tuple[str, str] | None = None,
) -> None:  # fmt: skip
    """Copy the tests, without the client's own code, and install the client."""
    copy = work / "checkout"
    if copy.exists():
        return
    if source is None:
        raise SystemExit(f"PyPI has no tests of this client; give a checkout of {repository}")
    shutil.copytree(source, copy, ignore=shutil.ignore_patterns(".git"))
    shutil.rmtree(copy / package, ignore_errors=True)
    if added is not None:
        name, text = added
        with (copy / name).open("a") as file:
            file.write(text)
    venv.create(work / "environment", with_pip=True)
    must([_python(work), "-m", "pip", "install", "--quiet", *_TOOLS, *packages], work)


def _run(
    work: Path, addresses: str, left_out: Mapping[str, str], *, tests: tuple[str, ...],
    flags: tuple[str, ...] = (), **environment: str,
) -> Outcome:  # fmt: skip
    """Run the tests that need a broker. A name of `left_out` is part of the id of a test."""
    copy, log = work / "checkout", work / "pytest.log"
    pytest = [
        _python(work), "-m", "pytest", "-p", "no:cacheprovider", "-q", "-rA", "--tb=short",
        "-o", "asyncio_default_fixture_loop_scope=function", "-o", "filterwarnings=default",
        f"--timeout={_TEST_S}", *flags,
    ]  # fmt: skip
    # Warnings name tests, too: some versions of pytest warn of each test with parameters.
    collect = [*pytest, "--collect-only", "--disable-warnings", *tests]
    known = must(collect, copy, BROKERS=addresses, **environment)
    ids = [line for line in known.splitlines() if _ID.match(line)]
    chosen = [name for name in ids if not any(_is_part(part, name) for part in left_out)]
    done = run([*pytest, *chosen], copy, log=log, limit_s=_ALL_S, BROKERS=addresses, **environment)
    outcome = Outcome([], {}, [])
    for told, _, name, said in _ROW.findall(log.read_text(errors="replace")):
        if told == "PASSED":
            outcome.passed.append(name)
        elif told in ("SKIPPED", "XFAIL"):
            outcome.skipped.append(name)
        else:
            outcome.failed[name] = said.lstrip(" -") or f"see {log}"
    if done.returncode and not outcome.failed:
        outcome.failed["pytest"] = f"exit code {done.returncode}, see {log}"
    return outcome


def _is_part(part: str, name: str) -> bool:
    """Return whether a file, or a test of this name, is left out."""
    path, _, test = name.partition("::")
    return path.endswith(part) or test.split("::")[-1].split("[")[0] == part


CONFLUENT: Final = Suite(
    "2.15.0",
    partial(
        _prepare, repository="confluentinc/confluent-kafka-python", package="src",
        packages=(
            "confluent-kafka[avro,json,protobuf,schemaregistry,rules]==2.15.0", "trivup", "avro",
        ),
    ),
    partial(
        _run,
        tests=tuple(f"tests/integration/{part}" for part in ("producer", "consumer", "admin")),
    ),
    _CONFLUENT,
)  # fmt: skip
AIOKAFKA: Final = Suite(
    "0.14.0",
    partial(
        _prepare, repository="aio-libs/aiokafka", package="aiokafka",
        packages=("aiokafka[lz4,snappy,zstd]==0.14.0", "docker", "pytest-mock"),
        added=("tests/conftest.py", _FIXTURES),
    ),
    partial(
        _run, tests=("tests",), flags=("--docker-image=kafka:2.12_2.1.0", "--no-pull"),
    ),
    _AIOKAFKA,
    partitions=2,
)  # fmt: skip
