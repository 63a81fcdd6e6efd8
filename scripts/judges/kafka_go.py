"""kafka-go's tests of its client, from the Go module proxy.

The tests look for one broker at a fixed address, and expect that the broker gives this address.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from .brokers import must
from .go_suites import copied, judged
from .suites import Outcome, Suite

VERSION: Final = "0.4.51"
_LIMIT_S: Final = 900
_ADDRESS: Final = "localhost:9092"

_DENSE: Final = "expects that the first offset is 0, and that offsets have no gaps"
_TIMES: Final = "expects the timestamps that the producer gave"
_TRANSACTIONS: Final = "needs transactions"
_PARTITIONS: Final = "needs more partitions for a topic; a topic keeps their number"
_BYTES: Final = "changes max.message.bytes, which is the same for all topics"
_ACLS: Final = "makes ACLs; rights are those of tokens"
_GONE: Final = "names a deleted topic, and expects that nothing creates the topic at once"
_NULL: Final = "the test follows a null pointer in its own helper, getOffsets"
_PORT: Final = "needs a second port, which asks for SASL"
_CONN: Final = "TestConn/"
_READER: Final = "TestReader/"
_RANDOM: Final = (
    "setting_the_offset_to_random_values_returns_the_expected_messages_when_Read_is_called"
)
_GROUP: Final = "TestReaderConsumerGroup/"

LEFT_OUT: Final[Mapping[str, str]] = {
    "TestClient/retrieve_committed_offsets_for_a_consumer_group_and_topic": _DENSE,
    "TestClientAddOffsetsToTxn": _TRANSACTIONS,
    "TestClientAddPartitionsToTxn": _TRANSACTIONS,
    "TestClientAlterConfigs": _BYTES,
    "TestClientCreateACLs": _ACLS,
    "TestClientCreatePartitions": _PARTITIONS,
    "TestClientCreatePartitionsNoAssignments": _PARTITIONS,
    "TestClientCreateTopics": "gives a topic with an assignment of replicas",
    "TestClientDeleteACLs": _ACLS,
    "TestClientDescribeACLs": _ACLS,
    "TestClientDescribeConfigs": _BYTES,
    "TestClientFetch": _DENSE,
    "TestClientFetchCompressed": _DENSE,
    "TestClientFindCoordinator": _TRANSACTIONS,
    "TestClientInitProducerId": _TRANSACTIONS,
    "TestClientListOffsets": _DENSE,
    "TestClientPipeline": _DENSE,
    "TestClientProduceAndConsume": _DENSE,
    _CONN + "ensure_the_connection_can_seek_to_the_last_offset": _DENSE,
    _CONN + "read_a_batch_using_explicit_max_wait_time": _DENSE,
    _CONN + "read_a_batch_with_no_explicit_min_or_max_bytes": _DENSE,
    _CONN + "test_delete_topics": _GONE,
    _CONN + "test_delete_topics_with_an_invalid_topic": _GONE,
    _CONN + "write_batch_of_messages_and_read_the_highest_offset_(watermark)": _DENSE,
    _CONN + "writing_a_batch_of_messages_and_reading_it_sequentially_should_preserve_the_order":
        _TIMES,
    _READER + "calling_ReadLag_returns_the_current_lag_of_a_reader": _DENSE,
    _READER + "setting_the_offset_by_TimeStamp": _TIMES,
    _READER + _RANDOM: _DENSE,
    _READER + "test_special_offsets_-1_and_-2": _DENSE,
    _GROUP + "basic_handshake": _DENSE,
    _GROUP + "consumer_group_commits_on_close": _NULL,
    _GROUP + "verify_offset_committed": _NULL,
    _GROUP + "verify_offset_committed_when_using_interval_committer": _NULL,
    _GROUP + "consumer_group_rebalance":
        "two readers of three partitions with 8 messages each are to get 12 messages each",
    "TestClientTxnOffsetCommit": _TRANSACTIONS,
    "TestReaderReadCompactedMessage": "waits two minutes for the compaction of tiny segments",
    "TestUnsupportedSASLMechanism": _PORT,
    "TestWriter/writing_a_message_with_SASL_Plain_authentication": _PORT,
}  # fmt: skip


def _prepare(work: Path, source: Path | None) -> None:
    copy = copied(work, "github.com/segmentio/kafka-go", VERSION, source)
    if copy is not None:
        must(["go", "mod", "tidy"], copy, GOPATH=str(work / "go"))


def _run(work: Path, _: str, left_out: Mapping[str, str]) -> Outcome:
    # The tests choose what they expect by the version. `nettest` fails with Kafka, too.
    return judged(
        work, work / "kafka-go", left_out, limit_s=_LIMIT_S, KAFKA_VERSION="2.1.0",
        KAFKA_SKIP_NETTEST="1",
    )  # fmt: skip


SUITE: Final = Suite(
    VERSION, _prepare, _run, LEFT_OUT, partitions=1, nodes=1, addresses=(_ADDRESS,)
)
