"""Kafka's error codes, and the code for each error of lognode.

A code must tell a client the truth about a record (S11): `NOT_LEADER_OR_FOLLOWER` says that the
record was not appended, `REQUEST_TIMED_OUT` that nobody knows. Clients send a record again after
both, as they do to Kafka.
"""

from typing import Final

from ...client.protocol.errors import (
    InvalidArgument,
    LimitExceeded,
    LogExists,
    LognodeError,
    LogNotFound,
    Overloaded,
    Routing,
    Timeout,
    Unauthorized,
    Unavailable,
    Unsupported,
)

UNKNOWN_SERVER_ERROR: Final = -1
NONE: Final = 0
OFFSET_OUT_OF_RANGE: Final = 1
CORRUPT_MESSAGE: Final = 2
UNKNOWN_TOPIC_OR_PARTITION: Final = 3
LEADER_NOT_AVAILABLE: Final = 5
NOT_LEADER_OR_FOLLOWER: Final = 6
REQUEST_TIMED_OUT: Final = 7
MESSAGE_TOO_LARGE: Final = 10
OFFSET_METADATA_TOO_LARGE: Final = 12
COORDINATOR_NOT_AVAILABLE: Final = 15
NOT_COORDINATOR: Final = 16
INVALID_TOPIC: Final = 17
NOT_ENOUGH_REPLICAS: Final = 19
INVALID_REQUIRED_ACKS: Final = 21
ILLEGAL_GENERATION: Final = 22
INCONSISTENT_GROUP_PROTOCOL: Final = 23
INVALID_GROUP_ID: Final = 24
UNKNOWN_MEMBER_ID: Final = 25
INVALID_SESSION_TIMEOUT: Final = 26
REBALANCE_IN_PROGRESS: Final = 27
TOPIC_AUTHORIZATION_FAILED: Final = 29
GROUP_AUTHORIZATION_FAILED: Final = 30
CLUSTER_AUTHORIZATION_FAILED: Final = 31
UNSUPPORTED_SASL_MECHANISM: Final = 33
ILLEGAL_SASL_STATE: Final = 34
UNSUPPORTED_VERSION: Final = 35
TOPIC_ALREADY_EXISTS: Final = 36
INVALID_PARTITIONS: Final = 37
INVALID_REPLICATION_FACTOR: Final = 38
INVALID_REPLICA_ASSIGNMENT: Final = 39
INVALID_CONFIG: Final = 40
INVALID_REQUEST: Final = 42
UNSUPPORTED_FOR_MESSAGE_FORMAT: Final = 43
OUT_OF_ORDER_SEQUENCE_NUMBER: Final = 45
INVALID_PRODUCER_EPOCH: Final = 47
TRANSACTIONAL_ID_AUTHORIZATION_FAILED: Final = 53
SASL_AUTHENTICATION_FAILED: Final = 58
UNKNOWN_PRODUCER_ID: Final = 59
NON_EMPTY_GROUP: Final = 68
GROUP_ID_NOT_FOUND: Final = 69
FETCH_SESSION_ID_NOT_FOUND: Final = 70
UNSUPPORTED_COMPRESSION_TYPE: Final = 76
GROUP_MAX_SIZE_REACHED: Final = 81
GROUP_SUBSCRIBED_TO_TOPIC: Final = 86
INVALID_RECORD: Final = 87

_TOO_LARGE: Final = ("value_bytes_max", "batch_bytes_max", "batch_records_max", "values_bytes_max")
"""Limits whose errors say that a smaller batch may succeed."""


def code_of(error: LognodeError) -> int:
    """Return the code that tells a client of an error."""
    if error.outcome == "unknown":
        return REQUEST_TIMED_OUT
    match error:
        case LogNotFound():
            return UNKNOWN_TOPIC_OR_PARTITION
        case LogExists():
            return TOPIC_ALREADY_EXISTS
        case Unauthorized():
            return TOPIC_AUTHORIZATION_FAILED
        case LimitExceeded() if error.fields.get("limit") in _TOO_LARGE:
            return MESSAGE_TOO_LARGE
        case InvalidArgument():
            return INVALID_RECORD
        case Overloaded():  # the record was not appended; clients try again
            return NOT_ENOUGH_REPLICAS
        case Routing() | Unavailable() | Timeout():
            return NOT_LEADER_OR_FOLLOWER
        case Unsupported():
            return UNSUPPORTED_VERSION
    return UNKNOWN_SERVER_ERROR
