"""A valid body of every command of the metadata."""

from typing import Any

from lognode.partitions import commands

REGISTER = {
    "op": commands.REGISTER, "node": 2, "incarnation": 7, "boot": 1, "process": 9,
    "address": "h:1", "peer": "h:3", "http": "h:2", "zone": "a", "key": "",
    "invite": None, "digest": None, "at_ms": 5, "levels": [1, 2],
}  # fmt: skip
SCOPE = [["read"], "orders", b"*"]
TOKEN = {
    "id": "0" * 16, "digest": bytes(32), "certificate": None, "principal": "ann",
    "scopes": [SCOPE], "expires_ms": None, "quota_class": "default", "at_ms": 5,
}  # fmt: skip
SOUND: dict[str, dict[str, Any]] = {
    commands.FOUND: {"cluster": "c" * 32, "node": 1, "token": None, "founders": 3, "level": 2,
                     "at_ms": 5},
    commands.REGISTER: REGISTER,
    commands.FINALIZE: {"level": 2, "nodes": [[1, 3, 9]]},
    commands.NODE_STATE: {"node": 1, "state": "DEAD"},
    commands.DRAIN_NODE: {"node": 1, "undo": False, "since": 4},
    commands.REMOVE_NODE: {"node": 1, "dead": True},
    commands.REKEY_NODE: {"node": 1, "key": "SHA256:x", "since": 4},
    commands.CREATE_LOG: {
        "name": "orders", "ranges": 3, "split_at": None, "replicas": 3, "retention_ms": 5,
        "retention_bytes": None, "cleanup": "delete", "delete_retention_ms": None,
        "snapshot_delay_ms": 0, "split_bytes": None, "split_rate": 1000, "exist_ok": True,
        "creation": b"c" * 16, "hierarchy": b"/", "kafka_partitions": 8,
        "local_retention_bytes": 9, "since": 4,
    },
    commands.ALTER_LOG: {
        "name": "orders", "changes": {"retention_ms": None, "split_rate": 500}, "since": 4,
    },
    commands.DELETE_LOG: {"name": "orders", "id": 7},
    commands.OPEN_ANONYMOUS: {"owner": "ann", "key": b"k" * 16},
    commands.OPEN_NAMED: {"name": "writer", "owner": "ann", "key": b"k" * 16, "at_ms": 5,
                           "allowed": 3},
    commands.DELETE_PRODUCER: {"name": "writer"},
    commands.EXPIRE_PRODUCERS: {"numbers": [1], "before_ms": 5},
    commands.SET_QUOTA: {"name": "gold", "limits": {"requests": 5}, "since": 4},
    commands.DELETE_QUOTA: {"name": "gold", "since": 4},
    commands.CREATE_TOKEN: {
        **TOKEN, "patterns": [[["read"], "shop", b"eu/*/orders"]], "by": "recovery at h:1",
        "since": 4, "scram": bytes(range(192)),
    },
    commands.REVOKE_TOKEN: {"id": "0" * 16},
    commands.CREATE_INVITE: {
        "id": "0" * 16, "digest": bytes(32), "expires_ms": 9, "by": "ann", "at_ms": 5,
        "since": 4,
    },
    commands.REVOKE_INVITE: {"id": "0" * 16},
    commands.CREATE_GROUP: {
        "log": "orders", "name": "billing", "prefix": b"", "patterns": [b"/", [b"cust/>"]],
        "max_deliveries": 5, "on_dead": "park", "lease_ms": 30_000, "begin": "time",
        "begin_ms": 7, "waits": True, "ordering": "none", "since": 4, "at_ms": 5,
    },
    commands.DELETE_GROUP: {"log": "orders", "name": "billing", "id": 3},
    commands.REGISTER_VIEW: {
        "log": "orders", "name": "search", "group": "billing", "cursor": None, "prefix": b"",
        "policy": "live", "since": 4, "at_ms": 5,
    },
    commands.DELETE_VIEW: {"log": "orders", "name": "search"},
    commands.PLAN: {
        "kind": "expand", "inputs": [[1, 1]], "outputs": [{"range": 1, "members": [1, 2]}],
        "reason": "why",
    },
    commands.MOVE: {"range": 1, "from": 1, "to": 2},
    commands.SPLIT: {"log": "orders", "at": b"m", "reason": "why"},
    commands.RECOVER: {"range": 1, "from": 1, "damaged": [2, 3]},
    commands.MERGE: {"log": "orders", "at": b"m", "reason": "why"},
    commands.SEALING: {"operation": 1},
    commands.APART: {"operation": 1},
    commands.DECIDE: {
        "operation": 1, "lineage": [[1, 1, 9, 2, 40, 1000, b"h" * 16]], "members": [[1, 2]],
        "effects": [b"e" * 25],
    },
    commands.INSTALLED: {"operation": 1, "node": 2, "at_ms": 5},
    commands.DONE: {"operation": 1, "at_ms": 5},
    commands.ABORT: {"operation": 1, "at_ms": 5},
    commands.SEAL_CONTROLLER: {"members": [1, 2, 3], "kind": "expand", "reason": "", "at_ms": 5},
}  # fmt: skip
