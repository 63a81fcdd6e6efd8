"""Operations on the cluster: metadata, logs, producers' names, and administration."""

from typing import Final

from . import limits, scopes
from .common import (
    BOUND,
    EMPTY,
    GRANT,
    KEY,
    LOG_NAME,
    NODE,
    SINCE,
    SMALL_BYTES,
    WHOLE_BYTES,
)
from .kinds import (
    AnyText,
    Array,
    Binary,
    Column,
    Flag,
    Integer,
    Nullable,
    OneOf,
    Opaque,
    Row,
    Table,
    Text,
)
from .levels import LEVEL_MIN, LEVELS_END
from .operation import Operation, Permission, Retry, Sender, Subject
from .principal import DEFAULT_CLASS
from .record import OMIT, Optional, Record, Shape

RANGE: Final = Record(
    {
        "id": Integer(),
        "generation": Integer(),
        "log": Integer(),
        "start": BOUND,
        "end": Optional(KEY),
        "members": Column(int, limits.nodes_max, low=0),
        "leader": Optional(Integer()),
        "operation": Optional(Integer(), 0),
        "state": Optional(Text(32), "ACTIVE"),
        "lineage": Optional(Opaque("partitions.model", list, about="for nodes"), OMIT),
        "met_at": Optional(Opaque("partitions.model", list, about="for nodes"), OMIT),
        "effects": Optional(Opaque("partitions.model", list, about="for nodes"), OMIT),
    },
    loose=True,
)
"""A descriptor with the last known leader."""
_NODE_ROW: Final = Record(
    {
        "id": Integer(),
        "address": Text(512),
        "http": Optional(AnyText(), OMIT),
        "zone": Optional(AnyText(), OMIT),
        "state": Optional(AnyText(), OMIT),
        "insecure": Optional(Flag(), OMIT),
        "replicas": Optional(Integer(), OMIT),
    },
    loose=True,
)
_KEPT_RULE: Final = Integer(0, (1 << 64) - 1)
"""Old versions accepted rules of 64 bits."""
POLICY: Final = Record(
    {
        "replicas": Optional(Integer(), OMIT),
        "retention_ms": Optional(_KEPT_RULE, OMIT),
        "retention_bytes": Optional(_KEPT_RULE, OMIT),
        "cleanup": Optional(AnyText(), OMIT),
        "delete_retention_ms": Optional(_KEPT_RULE, OMIT),
        "snapshot_delay_ms": Optional(_KEPT_RULE, OMIT),
        "split_bytes": Optional(_KEPT_RULE, OMIT),
        "split_rate": Optional(_KEPT_RULE, OMIT),
        "local_retention_bytes": Optional(_KEPT_RULE, OMIT),
        "kafka_partitions": Optional(Integer(), OMIT),
    },
    loose=True,
)
"""The rules of a log; nil: no such rule."""
_SEPARATOR: Final = Binary(limits.separator_bytes_max, 1, limit="separator_bytes_max")
_LOG_ROW: Final = Record(
    {"id": Integer(), "name": LOG_NAME, "policy": POLICY, "hierarchy": Optional(_SEPARATOR)},
    loose=True,
)
_RULES: Final[Shape] = {
    "retention_ms": Optional(Nullable(Integer()), OMIT),
    "retention_bytes": Optional(Nullable(Integer()), OMIT),
    "cleanup": Optional(Nullable(Text(16)), OMIT),
    "delete_retention_ms": Optional(Nullable(Integer()), OMIT),
    "snapshot_delay_ms": Optional(Nullable(Integer()), OMIT),
    "split_bytes": Optional(Nullable(Integer()), OMIT),
    "split_rate": Optional(Nullable(Integer()), OMIT),
    "local_retention_bytes": Optional(Nullable(Integer()), OMIT),
}
"""Rules of a policy. The controller checks that they fit together.

For `split_bytes` and `split_rate` nil means no rule, and a missing field means the default."""
_BEGUN: Final[Shape] = {
    "operation": Integer(), "version": Optional(Integer()), "generation": Optional(Integer(), OMIT),
}  # fmt: skip
_PLANNED: Final = Record(_BEGUN, loose=True)
_NODE_STATE: Final = Record(
    {"node": NODE, "state": Text(32), "replicas": Integer(), "version": Integer()}, loose=True
)

_KEY_SPAN: Final = Row(start=BOUND, end=Nullable(KEY))
_AT_LEAST: Final[Shape] = {"at_least": Optional(Integer(), 0)}
_PAGE_BYTES: Final = 4 * limits.MIB
"""The maximum bytes of a page of metadata: nodes, and descriptors with the longest keys."""

METADATA: Final = Operation(
    "metadata", 64,
    "Return a page of the metadata. With `log`: the ranges of that log with their leaders, "
    "all of them if they fit in a page. Without `log`: logs.",
    Sender.CLIENT, Permission.NONE, Retry.SAFE,
    Record({
        "log": Optional(LOG_NAME),
        "start_key": Optional(BOUND, b""),
        "after": Optional(Integer(), 0),
        "limit": Optional(Integer(1, limits.ranges_page_max), limits.ranges_page_max),
        "nodes": Optional(Flag(), True),
        **_AT_LEAST,
    }),
    Record({
        "cluster": Text(256),
        "version": Integer(),
        "nodes": Optional(Array(_NODE_ROW, 2 * limits.nodes_max), ()),
        "logs": Array(_LOG_ROW, limits.logs_page_max),
        "ranges": Array(RANGE, limits.ranges_per_log_max),
        "keys": Optional(Array(_KEY_SPAN, limits.token_scopes_max)),
        "next_key": Optional(KEY),
        "next": Optional(Integer()),
    }, loose=True),
    _PAGE_BYTES,
    subject=Subject.VISIBLE,
)  # fmt: skip
RANGES: Final = Operation(
    "ranges", 81,
    "Return a page of the ranges of all logs with their leaders, or a single range. The "
    "answer leaves out a range that no longer exists.",
    Sender.CLIENT, Permission.NONE, Retry.SAFE,
    Record({
        "range": Optional(Integer()),
        "after": Optional(Integer(), 0),
        "limit": Optional(Integer(1, limits.ranges_page_max), limits.ranges_page_max),
        **_AT_LEAST,
    }),
    Record({
        "version": Integer(),
        "ranges": Array(RANGE, limits.ranges_page_max),
        "next": Optional(Integer()),
    }, loose=True),
    _PAGE_BYTES,
    subject=Subject.VISIBLE,
)  # fmt: skip
_STATUS: Final = Record({
    **{
        name: Optional(Opaque("node.status", of, about="for people"), OMIT)
        for name, of in (
            ("cluster", dict), ("nodes", list), ("disk", dict), ("descriptors", dict),
            ("budgets", dict), ("logs", list), ("ranges", list), ("operations", list),
            ("replicas", list), ("segments_in_doubt", list), ("damaged", list),
            ("consumer_groups", dict), ("tier", dict), ("kafka", dict),
        )
    },
    "next": Optional(Row(section=Integer(), position=Integer()), OMIT),
}, loose=True)  # fmt: skip
"""For people; later versions may show more."""
STATUS: Final = Operation(
    "status", 65,
    "Return a page of what `/status.json` shows. The client appends the rows of later pages "
    "to those of the first page.",
    Sender.CLIENT, Permission.DESCRIBE, Retry.SAFE,
    Record({
        "after": Optional(Row(section=Integer(0, 63), position=Integer())),
        "limit": Optional(Integer(1, limits.status_page_max), limits.status_page_max),
    }),
    _STATUS, _PAGE_BYTES,
    subject=Subject.ANY_LOG,
)  # fmt: skip
HEALTH: Final = Operation(
    "health", 66,
    "Say whether the cluster is healthy, and give the reasons if it is not. The last of "
    "many reasons says how many reasons are left out.",
    Sender.CLIENT, Permission.DESCRIBE, Retry.SAFE,
    Record({"nodes": Optional(Integer(0, limits.nodes_max), 1)}),
    Record({
        "ok": Flag(),
        "reasons": Array(Text(8 * limits.KIB, lines=True), limits.health_reasons_max + 1),
        "next": Optional(Text(8 * limits.KIB)),
    }, loose=True),
    WHOLE_BYTES,
)  # fmt: skip
CREATE_LOG: Final = Operation(
    "create_log", 67, "Create a log with its ranges.",
    Sender.OPERATOR, Permission.ADMIN, Retry.IDEMPOTENT,
    Record({
        "name": LOG_NAME,
        "ranges": Optional(Integer(1, limits.ranges_per_log_max)),
        "split_at": Optional(Column(
            bytes, limits.ranges_per_log_max - 1, low=1, high=limits.key_bytes_max,
            limit="ranges_per_log_max",
        )),
        "replicas": Optional(Integer(1, limits.replicas_max)),
        **_RULES,
        "exist_ok": Optional(Flag(), False),
        "creation": Optional(Binary(limits.creation_bytes, limits.creation_bytes)),
        "kafka_partitions": Optional(Integer(1, limits.kafka_partitions_max), OMIT),
        "hierarchy": Optional(_SEPARATOR, OMIT),
        **SINCE,
    }),
    Record({
        "log": Integer(), "created": Optional(Flag(), OMIT), "hierarchy": Optional(_SEPARATOR),
        "kafka_partitions": Optional(Integer()),
    }, loose=True), SMALL_BYTES,
    subject=Subject.LOG,
)  # fmt: skip
ALTER_LOG: Final = Operation(
    "alter_log", 68, "Change the rules of a log.",
    Sender.OPERATOR, Permission.ADMIN, Retry.IDEMPOTENT,
    Record({
        "name": LOG_NAME,
        "changes": Table(
            Text(64), Nullable(OneOf(Integer(), Text(16))), 16,
        ),
        **SINCE,
    }),
    Record({"log": Integer(), "policy": POLICY}, loose=True), SMALL_BYTES,
    subject=Subject.LOG,
)  # fmt: skip
DELETE_LOG: Final = Operation(
    "delete_log", 69,
    "Delete a log and all its entries.",
    Sender.OPERATOR, Permission.ADMIN, Retry.ONCE,
    Record({"name": LOG_NAME, "id": Optional(Integer())}), EMPTY, SMALL_BYTES,
    subject=Subject.LOG,
)  # fmt: skip
PRODUCER_OPEN: Final = Operation(
    "producer_open", 70,
    "Return the id of a named producer with a higher epoch than before, or a block of "
    "anonymous ids. On a cluster with tokens the requests that name these ids need the "
    "`grant`, which is valid only for the principal that opened the ids.",
    Sender.CLIENT, Permission.APPEND, Retry.SAFE,
    Record({"name": Optional(Text(
        limits.producer_name_bytes_max, 1, limit="producer_name_bytes_max"))}),
    Record(
        {"id": Integer(), "epoch": Integer(), "count": Optional(Integer(), 1),
         "grant": Optional(GRANT)},
        loose=True,
    ),
    SMALL_BYTES,
    subject=Subject.ANY_LOG,
)  # fmt: skip
_PRODUCER_ROW: Final = Record(
    {
        "name": Text(limits.producer_name_bytes_max, 1),
        "id": Integer(),
        "epoch": Integer(),
        "opened_ms": Optional(Integer()),
        "owner": Text(limits.producer_name_bytes_max),
    },
    loose=True,
)
PRODUCERS_ASKED: Final[Shape] = {
    "after": Optional(Integer(), 0),
    "limit": Optional(Integer(1, limits.producers_page_max), limits.producers_page_max),
}
PRODUCERS_TOLD: Final[Shape] = {
    "producers": Array(_PRODUCER_ROW, limits.producers_page_max),
    "next": Optional(Integer()),
}
PRODUCERS_BYTES: Final = limits.producers_page_max * (2 * limits.producer_name_bytes_max + 128)
PRODUCERS: Final = Operation(
    "producers", 82,
    "Return a page of the named producers. A page may be empty and have a `next`.",
    Sender.CLIENT, Permission.DESCRIBE, Retry.SAFE,
    Record(PRODUCERS_ASKED), Record(PRODUCERS_TOLD, loose=True), PRODUCERS_BYTES,
)  # fmt: skip
PRODUCER_DELETE: Final = Operation(
    "producer_delete", 83,
    "Forget a producer's name. The next opening of that name returns the same id with a higher "
    "epoch.",
    Sender.OPERATOR, Permission.ADMIN, Retry.ONCE,
    Record({"name": Text(
        limits.producer_name_bytes_max, 1, limit="producer_name_bytes_max")}),
    Record({"id": Integer(), "epoch": Integer()}, loose=True), SMALL_BYTES,
)  # fmt: skip
RANGE_TRANSFER: Final = Operation(
    "range_transfer", 72, "Have a member lead a range.",
    Sender.OPERATOR, Permission.ADMIN, Retry.SAFE,
    Record({"range": Integer(), "node": Integer()}),
    Record({"leader": Integer(), "changed": Flag()}, loose=True), SMALL_BYTES,
)  # fmt: skip
RANGE_MOVE: Final = Operation(
    "range_move", 73,
    "Begin to move a replica of a range from one node to another.",
    Sender.OPERATOR, Permission.ADMIN, Retry.ONCE,
    Record({"range": Integer(), "from": Integer(), "to": Integer()}),
    Record(
        {**_BEGUN, "members": Optional(Column(int, limits.nodes_max), OMIT)}, loose=True
    ),
    SMALL_BYTES,
)  # fmt: skip
RANGE_SPLIT: Final = Operation(
    "range_split", 74, "Begin to split the range that has the key, at the key.",
    Sender.OPERATOR, Permission.ADMIN, Retry.ONCE,
    Record({"log": LOG_NAME, "at": KEY}),
    Record(
        {**_BEGUN, "range": Optional(Integer(), OMIT), "new_range": Optional(Integer(), OMIT)},
        loose=True,
    ),
    SMALL_BYTES,
    subject=Subject.LOG,
)  # fmt: skip
RANGE_MERGE: Final = Operation(
    "range_merge", 75, "Begin to merge the two ranges of a log that meet at the key.",
    Sender.OPERATOR, Permission.ADMIN, Retry.ONCE,
    Record({"log": LOG_NAME, "at": KEY}),
    Record(
        {**_BEGUN, "range": Optional(Integer(), OMIT), "gone_range": Optional(Integer(), OMIT)},
        loose=True,
    ),
    SMALL_BYTES,
    subject=Subject.LOG,
)  # fmt: skip
_RECOVERY: Final = Record({
    "range": Integer(),
    "log": Optional(AnyText(), OMIT),
    "start": Optional(BOUND, OMIT),
    "end": Optional(KEY, OMIT),
    "generation": Optional(Integer(), OMIT),
    "operation": Optional(Integer(), OMIT),
    "members": Array(Record({
        "node": Integer(),
        "state": Optional(AnyText(), OMIT),
        "answers": Optional(Flag(), OMIT),
        "damaged": Optional(AnyText(), OMIT),
        "last_term": Optional(Integer(), OMIT),
        "last_index": Optional(Integer(), OMIT),
        "applied": Optional(Integer(), OMIT),
        "last_seq": Optional(Integer(), OMIT),
        "last_timestamp_ms": Optional(Integer(), OMIT),
    }, loose=True), limits.nodes_max),
    "proposed": Optional(Integer(), OMIT),
    "refused": Optional(AnyText(), OMIT),
}, loose=True)  # fmt: skip
RANGE_RECOVERY: Final = Operation(
    "range_recovery", 76, "Report the members to recover a range from. This changes nothing.",
    Sender.OPERATOR, Permission.DESCRIBE, Retry.SAFE,
    Record({"range": Integer()}),
    _RECOVERY, 64 * limits.KIB,
)  # fmt: skip
RANGE_RECOVER: Final = Operation(
    "range_recover", 77,
    "Begin unsafe recovery of a range from one member; acknowledged entries may be lost.",
    Sender.OPERATOR, Permission.ADMIN, Retry.ONCE,
    Record({"range": Integer(), "from": Integer(), "accept_loss": Optional(Flag(), False)}),
    _PLANNED, SMALL_BYTES,
)  # fmt: skip
NODE_DRAIN: Final = Operation(
    "node_drain", 78, "Begin to move all replicas and leads away from a node.",
    Sender.OPERATOR, Permission.ADMIN, Retry.IDEMPOTENT,
    Record({"node": Integer(), "undo": Optional(Flag(), False), **SINCE}),
    _NODE_STATE, SMALL_BYTES,
)  # fmt: skip
NODE_REMOVE: Final = Operation(
    "node_remove", 79, "Remove a node from the cluster for ever. The node must be drained or DEAD.",
    Sender.OPERATOR, Permission.ADMIN, Retry.IDEMPOTENT,
    Record({"node": Integer(), "dead": Optional(Flag(), False)}), _NODE_STATE, SMALL_BYTES,
)  # fmt: skip

NODE_REKEY: Final = Operation(
    "node_rekey", 80,
    "Bind a node to another TLS key: from now on the node must prove that it holds this key.",
    Sender.OPERATOR, Permission.ADMIN, Retry.IDEMPOTENT,
    Record({"node": Integer(), "key": Text(128, 1), **SINCE}), _NODE_STATE, SMALL_BYTES,
)  # fmt: skip

FINALIZE: Final = Operation(
    "finalize", 94,
    "Raise the feature level of the cluster, once the programs of all nodes know it. It is never "
    "lowered: from then on no earlier version can serve in the cluster.",
    Sender.OPERATOR, Permission.ADMIN, Retry.IDEMPOTENT,
    Record({"level": Optional(Integer(LEVEL_MIN, LEVELS_END - 1))}),
    Record({"level": Integer()}, loose=True), SMALL_BYTES,
)  # fmt: skip

_PRINCIPAL: Final = Text(limits.principal_name_chars_max, 1, chars=True)
_TOKEN_ID: Final = Text(16, 16)
_SCOPE: Final = Row(
    verbs=Array(Text(0, among=scopes.VERBS), len(scopes.VERBS), 1),
    log=Text(limits.log_name_bytes_max + 1, 1),
    keys=Binary(limits.key_bytes_max + 1, 1),
)
"""The format of `client.protocol.scopes`: `log` and `keys` may end with `*`."""
TOKEN_CREATE: Final = Operation(
    "token_create", 88,
    "Give a principal rights. A client that shows the token with this `digest`, or the certificate "
    "that `certificate` names, has the scopes. Exactly one of the two is given. `scram` are keys "
    "by which a Kafka client can prove the token: the stored and the server key of SCRAM-SHA-256, "
    "then those of SCRAM-SHA-512.",
    Sender.OPERATOR, Permission.ADMIN, Retry.IDEMPOTENT,
    Record({
        "id": _TOKEN_ID,
        "digest": Optional(Binary(32, 32)),
        "certificate": Optional(Text(limits.certificate_holder_chars_max, 1, chars=True)),
        "principal": _PRINCIPAL,
        "scopes": Array(_SCOPE, limits.token_scopes_max),
        "patterns": Optional(Array(_SCOPE, limits.token_scopes_max, 1), OMIT),
        "scram": Optional(Binary(limits.scram_keys_bytes, limits.scram_keys_bytes), OMIT),
        "expires_ms": Optional(Integer(1)),
        "quota_class": Optional(Text(limits.quota_class_chars_max, 1, chars=True), DEFAULT_CLASS),
        **SINCE,
    }),
    Record({
        "id": _TOKEN_ID, "version": Integer(), "patterns": Optional(Integer(), OMIT),
        "scram": Optional(Flag(), OMIT),
    }, loose=True),
    SMALL_BYTES,
)  # fmt: skip
_TOKEN_ROW: Final = Record(
    {
        "id": _TOKEN_ID,
        "principal": _PRINCIPAL,
        "certificate": Optional(Text(limits.certificate_holder_chars_max, chars=True), ""),
        "scopes": Array(_SCOPE, limits.token_scopes_max),
        "patterns": Optional(Array(_SCOPE, limits.token_scopes_max), OMIT),
        "scram": Optional(Flag(), OMIT),
        "created_ms": Integer(),
        "expires_ms": Optional(Integer()),
        "quota_class": Text(limits.quota_class_chars_max, chars=True),
    },
    loose=True,
)
TOKEN_LIST: Final = Operation(
    "token_list", 89,
    "Return a page of the tokens by id, without their secrets. A page has fewer tokens than "
    "`limit` if their scopes are long.",
    Sender.OPERATOR, Permission.ADMIN, Retry.SAFE,
    Record({
        "after": Optional(_TOKEN_ID),
        "limit": Optional(Integer(1, limits.tokens_page_max), limits.tokens_page_max),
    }),
    Record({
        "tokens": Array(_TOKEN_ROW, limits.tokens_page_max),
        "next": Optional(_TOKEN_ID),
    }, loose=True),
    limits.tokens_page_bytes + limits.token_bytes_max + SMALL_BYTES,
)  # fmt: skip
TOKEN_REVOKE: Final = Operation(
    "token_revoke", 90,
    "Revoke a token; each node ends the connections that use the token.",
    Sender.OPERATOR, Permission.ADMIN, Retry.ONCE,
    Record({"id": _TOKEN_ID}), Record({"version": Integer()}, loose=True), SMALL_BYTES,
)  # fmt: skip

CLUSTER: Final = (
    METADATA, RANGES, STATUS, HEALTH, CREATE_LOG, ALTER_LOG, DELETE_LOG, PRODUCER_OPEN, PRODUCERS,
    PRODUCER_DELETE, RANGE_TRANSFER, RANGE_MOVE, RANGE_SPLIT, RANGE_MERGE, RANGE_RECOVERY,
    RANGE_RECOVER, NODE_DRAIN, NODE_REMOVE, NODE_REKEY, FINALIZE, TOKEN_CREATE, TOKEN_LIST,
    TOKEN_REVOKE,
)  # fmt: skip
