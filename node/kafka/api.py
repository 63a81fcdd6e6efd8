"""The requests that the door serves, their versions, and the head of a request.

The profile is that of Kafka 2.1 without flexible versions: every client since then speaks it. A
newer `ApiVersions` is answered in version 0 with UNSUPPORTED_VERSION and the table, after which the
client asks again with a version of the table (KIP-511).
"""

from typing import Final, NamedTuple

from . import codes
from .wire import Malformed, Reader, Writer

PRODUCE: Final = 0
FETCH: Final = 1
LIST_OFFSETS: Final = 2
METADATA: Final = 3
OFFSET_COMMIT: Final = 8
OFFSET_FETCH: Final = 9
FIND_COORDINATOR: Final = 10
JOIN_GROUP: Final = 11
HEARTBEAT: Final = 12
LEAVE_GROUP: Final = 13
SYNC_GROUP: Final = 14
DESCRIBE_GROUPS: Final = 15
LIST_GROUPS: Final = 16
SASL_HANDSHAKE: Final = 17
API_VERSIONS: Final = 18
CREATE_TOPICS: Final = 19
DELETE_TOPICS: Final = 20
DELETE_RECORDS: Final = 21
INIT_PRODUCER_ID: Final = 22
DESCRIBE_CONFIGS: Final = 32
ALTER_CONFIGS: Final = 33
SASL_AUTHENTICATE: Final = 36
CREATE_PARTITIONS: Final = 37
DELETE_GROUPS: Final = 42
INCREMENTAL_ALTER_CONFIGS: Final = 44
OFFSET_DELETE: Final = 47

VERSIONS: Final = {
    PRODUCE: (3, 7),
    FETCH: (4, 10),
    LIST_OFFSETS: (1, 4),
    METADATA: (0, 7),
    OFFSET_COMMIT: (2, 6),
    OFFSET_FETCH: (1, 5),
    FIND_COORDINATOR: (0, 2),
    JOIN_GROUP: (0, 3),
    HEARTBEAT: (0, 2),
    LEAVE_GROUP: (0, 2),
    SYNC_GROUP: (0, 2),
    DESCRIBE_GROUPS: (0, 2),
    LIST_GROUPS: (0, 2),
    SASL_HANDSHAKE: (0, 1),
    API_VERSIONS: (0, 2),
    CREATE_TOPICS: (0, 4),
    DELETE_TOPICS: (0, 3),
    DELETE_RECORDS: (0, 1),
    INIT_PRODUCER_ID: (0, 1),
    DESCRIBE_CONFIGS: (0, 2),
    ALTER_CONFIGS: (0, 1),
    SASL_AUTHENTICATE: (0, 1),
    CREATE_PARTITIONS: (0, 1),
    DELETE_GROUPS: (0, 1),
    INCREMENTAL_ALTER_CONFIGS: (0, 0),
    OFFSET_DELETE: (0, 0),
}
"""The first and the last version of each request."""
NAMES: Final = {
    PRODUCE: "produce", FETCH: "fetch", LIST_OFFSETS: "list_offsets", METADATA: "metadata",
    OFFSET_COMMIT: "offset_commit", OFFSET_FETCH: "offset_fetch",
    FIND_COORDINATOR: "find_coordinator", JOIN_GROUP: "join_group", HEARTBEAT: "heartbeat",
    LEAVE_GROUP: "leave_group", SYNC_GROUP: "sync_group", DESCRIBE_GROUPS: "describe_groups",
    LIST_GROUPS: "list_groups", SASL_HANDSHAKE: "sasl_handshake", API_VERSIONS: "api_versions",
    CREATE_TOPICS: "create_topics", DELETE_TOPICS: "delete_topics",
    INIT_PRODUCER_ID: "init_producer_id", DESCRIBE_CONFIGS: "describe_configs",
    SASL_AUTHENTICATE: "sasl_authenticate", DELETE_RECORDS: "delete_records",
    ALTER_CONFIGS: "alter_configs", INCREMENTAL_ALTER_CONFIGS: "incremental_alter_configs",
    CREATE_PARTITIONS: "create_partitions", DELETE_GROUPS: "delete_groups",
    OFFSET_DELETE: "offset_delete",
}  # fmt: skip
"""The names of the requests in metrics."""
_V1: Final = 1


class Head(NamedTuple):
    """The head of a request."""

    api: int
    version: int
    correlation: int
    client: str | None


def head_of(reader: Reader) -> Head:
    """Return the head of a request. Raises Malformed for a request that the door does not serve;
    `ApiVersions` may have any version."""
    api, version, correlation = reader.int16(), reader.int16(), reader.int32()
    low, high = VERSIONS.get(api, (0, -1))
    if api == API_VERSIONS and version > high:
        return Head(api, version, correlation, None)  # its head has other fields
    if not low <= version <= high:
        raise Malformed(f"request {api} of version {version} is not served")
    return Head(api, version, correlation, reader.nullable_text())


def versions(version: int) -> bytes:
    """Return the answer to a request for the versions."""
    writer = Writer()
    known = version <= VERSIONS[API_VERSIONS][1]
    writer.int16(codes.NONE if known else codes.UNSUPPORTED_VERSION)
    rows = [(api, low, high) for api, (low, high) in sorted(VERSIONS.items())]

    def row(told: tuple[int, int, int]) -> None:
        for number in told:
            writer.int16(number)

    writer.array(rows, row)
    if known and version >= _V1:
        writer.int32(0)  # throttle_time_ms
    return writer.done()
