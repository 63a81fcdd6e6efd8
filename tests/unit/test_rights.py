"""What a token allows: every operation of the table, its log and its keys."""

import asyncio
import copy
from types import SimpleNamespace
from typing import Any

import pytest
from metadata_log import Controller

from lognode.client import tokens
from lognode.client.accepting.access import Allowed
from lognode.client.protocol import OPERATIONS, Operation, Permission, Sender, Subject
from lognode.client.protocol.appends import (
    APPEND,
    DELETE_KEYS,
    FENCE,
    LEASE_TAKE,
    PRODUCER_CLOSE,
    PRODUCER_NUMBER,
    TRIM,
)
from lognode.client.protocol.cluster import (
    ALTER_LOG,
    CREATE_LOG,
    HEALTH,
    METADATA,
    NODE_DRAIN,
    PRODUCER_OPEN,
    RANGE_MOVE,
    RANGE_SPLIT,
    RANGES,
    STATUS,
    TOKEN_CREATE,
    TOKEN_LIST,
)
from lognode.client.protocol.cursors import (
    CURSOR_COMMIT,
    CURSOR_DELETE,
    CURSOR_LIST,
    CURSOR_OPEN,
    CURSOR_READ,
    CURSOR_SET,
)
from lognode.client.protocol.errors import (
    GenerationMismatch,
    RangeNotFound,
    Unauthorized,
    Unavailable,
)
from lognode.client.protocol.groups import (
    GROUP_APPEND,
    GROUP_CREATE,
    GROUP_DECIDE,
    GROUP_HISTORY,
    GROUP_KEYS,
    GROUP_LAG,
    GROUP_LIST,
    GROUP_SETTLE,
    GROUP_TAKE,
)
from lognode.client.protocol.key_spans import KeySpans
from lognode.client.protocol.reads import EXPORT, FOLLOW, KEYS, LATEST, READ_SPAN, RESOLVE, SCAN
from lognode.client.protocol.scopes import VERBS, Scope, scopes_of
from lognode.client.protocol.views import VIEW_LIST, VIEWS_WAIT
from lognode.node.access.rights import Rights
from lognode.node.access.visible import Visible, visible
from lognode.node.audit.reserved import Reserved
from lognode.node.serving.metadata_service import MetadataService
from lognode.partitions.grants import grant
from lognode.partitions.metadata import Metadata
from lognode.partitions.tokens import TokenRecord

KEY = b"0123456789abcdef"
GRANT = grant(KEY, 1, 1, "app")
OF_CLIENTS = [
    operation
    for operation in OPERATIONS.values()
    if operation.sender in (Sender.CLIENT, Sender.OPERATOR)
]


@pytest.fixture(scope="module")
def metadata() -> Metadata:
    """Logs 1 `acme/a` of range 1, 2 `acme/b` of ranges 2 and 3, split at `m`, and 3 `other`."""
    controller = Controller().nodes(1)
    controller.do("create_log", name="acme/a")
    controller.do("create_log", name="acme/b", split_at=[b"m"])
    controller.do("create_log", name="other")
    controller.metadata.producer_key = KEY
    controller.metadata.settle()
    return controller.metadata


def rights(metadata: Metadata, *scopes: str, principal: str = "app") -> Rights:
    token = tokens.draw()
    record = TokenRecord(tokens.id_of(token), principal, scopes_of(scopes), tokens.digest_of(token))
    return Rights(record, lambda: metadata)


def body(operation: Operation, **given: Any) -> dict[str, Any]:
    """As the acceptor has it."""
    where = {"range": 1, "generation": 1} if "range" in operation.request.shape else {}
    return operation.request.check({**where, **given})


SMALL: dict[str, dict[str, Any]] = {
    "trim_partition": {"start_key": b"\0\1", "end_key": b"\0\2", "before": 1},
    "append": {"batches": [b""]}, "fence": {"id": 1, "epoch": 1}, "producer_close": {"id": 1},
    "producer_number": {"producer": 1, "number": 1}, "trim": {"keys": [[b"k", 1]]},
    "delete_keys": {"keys": [[b"k", 1]]},
    "lease": {"lease": "l", "through": 1, "lease_ms": 1}, "release": {"lease": "l"},
    "restore": {"next_seq": 1, "rows": []},
    "latest": {"key": b"k"}, "count": {"key": b"k"}, "scan": {"key": b"k"},
    "cursor_open": {"cursor": "c", "holder": 1, "spans": [[b"k", None, 1]]},
    "cursor_commit": {"cursor": "c", "holder": 1, "spans": [], "keys": [[b"k", 1]]},
    "cursor_set": {"cursor": "c", "holder": 1, "spans": [[b"k", None, 1]]},
    "cursor_delete": {"cursor": "c"}, "cursor_read": {"cursor": "c"}, "cursor_list": {},
    "group_settle": {"group": 1, "consumer": 1, "acks": [[b"k", 1, 1]]},
    "group_append": {"group": 1, "consumer": 1, "acks": [[b"k", 1, 1, 2]], "batch": b""},
    "group_decide": {"group": 1}, "group_take": {"group": 1, "consumer": 1},
    "group_lag": {"group": 1}, "group_keys": {"group": 1}, "group_history": {"group": 1},
    "group_create": {"log": "acme/a", "name": "g"}, "group_delete": {"log": "acme/a", "name": "g"},
    "group_list": {"log": "acme/a"}, "view_list": {"log": "acme/a"},
    "views_wait": {"keys": [[b"k", 1]], "views": [1]},
    "view_register": {"log": "acme/a", "name": "v", "group": "g"},
    "view_delete": {"log": "acme/a", "name": "v"},
    "resolve": {"start": "earliest"}, "metadata": {"log": "acme/a"},
    "create_log": {"name": "acme/a"},
    "alter_log": {"name": "acme/a", "changes": {}}, "delete_log": {"name": "acme/a"},
    "range_transfer": {"node": 1}, "range_move": {"from": 1, "to": 2},
    "range_split": {"log": "acme/a", "at": b"k"}, "range_merge": {"log": "acme/a", "at": b"k"},
    "range_recover": {"from": 1}, "node_drain": {"node": 1}, "node_remove": {"node": 1},
    "node_rekey": {"node": 1, "key": "k"}, "producer_delete": {"name": "import"},
    "token_create": {"id": "0" * 16, "principal": "p", "scopes": [[["read"], "*", b"*"]]},
    "token_revoke": {"id": "0" * 16},
    "node_invite": {"id": "0" * 16, "digest": bytes(32), "expires_ms": 9},
    "node_uninvite": {"id": "0" * 16}, "node_report": {"part": "storage"},
    "quota_set": {"name": "gold", "limits": {}}, "quota_delete": {"name": "gold"},
}  # fmt: skip


def granted_of(operation: Operation) -> dict[str, Any]:
    """A small body of the operation. Who names a producer id has the grant of the id."""
    found = SMALL.get(operation.name, {})
    return {**found, "grant": GRANT} if "grant" in operation.request.shape else found


@pytest.mark.parametrize("operation", OF_CLIENTS, ids=str)
def test_every_operation_needs_its_verb(metadata: Metadata, operation: Operation) -> None:
    """With every other verb on everything it is refused, with its own on everything allowed."""
    asked = body(operation, **granted_of(operation))
    verb = own = operation.permission.value
    if operation is GROUP_APPEND:
        own = "read,append"
    if operation.permission is Permission.NONE:
        assert operation in (METADATA, RANGES, GROUP_LIST, VIEW_LIST)
        own = "read"
    rights(metadata, own).authorise(operation, asked)
    rights(metadata, "all").authorise(operation, asked)
    others = ",".join(each for each in VERBS if each != verb)
    if operation not in (METADATA, RANGES, GROUP_LIST, VIEW_LIST):
        with pytest.raises(Unauthorized, match=f"needs the verb {verb}"):
            rights(metadata, others).authorise(operation, asked)
    if operation is RANGES:
        return  # it names no log: `visible` leaves the ranges of others out
    with pytest.raises(Unauthorized):
        rights(metadata, "group other").authorise(operation, asked)


@pytest.mark.parametrize("operation", OF_CLIENTS, ids=str)
def test_a_tenant_keeps_to_its_logs(metadata: Metadata, operation: Operation) -> None:
    asked = body(operation, **granted_of(operation))
    tenant, stranger = rights(metadata, "all acme/*"), rights(metadata, "all other")
    if operation.subject is Subject.ANY_LOG:
        tenant.authorise(operation, asked)
    elif operation.subject is Subject.CLUSTER:
        with pytest.raises(Unauthorized, match="the whole cluster"):
            tenant.authorise(operation, asked)
    else:
        tenant.authorise(operation, asked)
        if operation is RANGES:
            return  # it names no log: `visible` leaves the ranges of others out
        with pytest.raises(Unauthorized, match="acme/a"):
            stranger.authorise(operation, asked)


def test_operations_on_nodes_ranges_and_tokens_are_about_the_whole_cluster() -> None:
    for operation in (HEALTH, NODE_DRAIN, RANGE_MOVE, TOKEN_CREATE, TOKEN_LIST):
        assert operation.subject is Subject.CLUSTER
    for operation in (CREATE_LOG, ALTER_LOG, RANGE_SPLIT):
        assert operation.subject is Subject.LOG
    for operation in (PRODUCER_OPEN, STATUS):
        assert operation.subject is Subject.ANY_LOG


@pytest.mark.parametrize(
    ("operation", "given", "allowed"),
    [
        (LATEST, {"key": b"user-1"}, True),
        (LATEST, {"key": b"user"}, False),
        (SCAN, {"key": b"zz"}, False),
        (KEYS, {"prefix": b"user-"}, True),
        (KEYS, {"prefix": b"user-1"}, True),
        (KEYS, {"prefix": b"use"}, False),
        (KEYS, {}, False),
        (KEYS, {"prefix": b"user-", "start_after": b"a"}, True),
        (READ_SPAN, {}, False),
        (READ_SPAN, {"start_key": b"user-", "end_key": b"user."}, True),
        (READ_SPAN, {"start_key": b"user-", "end_key": b"user.\0"}, False),
        (READ_SPAN, {"start_key": b"user-"}, False),
        (EXPORT, {"start_key": b"user-1", "end_key": b"user-2"}, True),
        (RESOLVE, {"start": "earliest", "key": b"user-1"}, True),
        (RESOLVE, {"start": "earliest", "key": b"x"}, False),
        (RESOLVE, {"start": "latest"}, False),
        (FOLLOW, {"keys": {b"user-1": 1, b"user-2": 1}}, True),
        (FOLLOW, {"keys": {b"user-1": 1, b"x": 1}}, False),
        (FOLLOW, {"keys": {}}, True),
        (FOLLOW, {"prefix": b"user-"}, True),
        (FOLLOW, {"prefix": b"user-", "start_key": b"a", "end_key": b"z"}, True),
        (FOLLOW, {"start_key": b"user-", "end_key": b"user-z"}, True),
        (FOLLOW, {}, False),
        (LEASE_TAKE, {"lease": "l", "through": 1, "lease_ms": 1}, False),
        (LEASE_TAKE, {"lease": "l", "through": 1, "lease_ms": 1, "start_key": b"user-5",
                      "end_key": b"user-6"}, True),
        (CURSOR_OPEN, {"cursor": "c", "holder": 1, "spans": [[b"user-", b"user.", 1]]}, True),
        (CURSOR_OPEN, {"cursor": "c", "holder": 1, "spans": [[b"user-", None, 1]]}, False),
        (CURSOR_COMMIT, {"cursor": "c", "holder": 1, "spans": [[b"user-1", b"user-2", 1]],
                         "keys": [[b"user-3", 1]]}, True),
        (CURSOR_COMMIT, {"cursor": "c", "holder": 1, "spans": [[b"a", b"b", 1]],
                         "keys": [[b"user-3", 1]]}, False),
        (CURSOR_COMMIT, {"cursor": "c", "holder": 1, "spans": [], "keys": [[b"x", 1]]}, False),
        (CURSOR_SET, {"cursor": "c", "holder": 1, "spans": [[b"", b"b", 1]]}, False),
        (CURSOR_DELETE, {"cursor": "c"}, False),
        (CURSOR_READ, {"cursor": "c", "start_key": b"user-", "end_key": b"user."}, True),
        (CURSOR_LIST, {}, False),
        (GROUP_TAKE, {"group": 1, "consumer": 1}, False),
        (GROUP_TAKE, {"group": 1, "consumer": 1, "prefix": b"user-"}, True),
        (GROUP_SETTLE, {"group": 1, "consumer": 1, "leave": True}, True),
        (GROUP_SETTLE, {"group": 1, "consumer": 1, "acks": [[b"user-1", 1, 1]]}, True),
        (GROUP_SETTLE, {"group": 1, "consumer": 1, "acks": [[b"x", 1, 1]]}, False),
        (GROUP_SETTLE, {"group": 1, "consumer": 1, "acks": [[b"user-1", 1, 1]],
                        "releases": [[b"x", 1, 0, ""]]}, False),
        (GROUP_SETTLE, {"group": 1, "consumer": 1, "rejects": [[b"x", 1, ""]]}, False),
        (GROUP_SETTLE, {"group": 1, "consumer": 1, "extends": [[b"x", 1]]}, False),
        (VIEWS_WAIT, {"keys": [[b"user-1", 1], [b"user-2", 1]], "views": [1]}, True),
        (VIEWS_WAIT, {"keys": [[b"user-1", 1], [b"x", 1]], "views": [1]}, False),
        (GROUP_LAG, {"group": 1}, False),
        (GROUP_LAG, {"group": 1, "prefix": b"user-"}, True),
        (GROUP_KEYS, {"group": 1, "key": b"user-7"}, True),
        (GROUP_KEYS, {"group": 1, "key": b"x"}, False),
        (GROUP_HISTORY, {"group": 1, "prefix": b"user-", "start_key": b"a"}, True),
        (TRIM, {"keys": [[b"user-1", 1], [b"user-2", 1]]}, True),
        (TRIM, {"keys": [[b"user-1", 1], [b"x", 1]]}, False),
        (DELETE_KEYS, {"keys": [[b"x", 1]]}, False),
    ],
)  # fmt: skip
def test_a_scope_of_keys_allows_these_keys_alone(
    metadata: Metadata, operation: Operation, given: dict[str, Any], allowed: bool
) -> None:
    app = rights(metadata, "read,append,trim acme/a user-*")
    if allowed:
        assert app.authorise(operation, body(operation, **given)) is None
    else:
        with pytest.raises(Unauthorized, match="keys of log acme/a"):
            app.authorise(operation, body(operation, **given))


def test_decisions_about_a_group_need_the_verb_group_on_the_log(metadata: Metadata) -> None:
    asked = body(GROUP_DECIDE, group=1, retry=[b"user-1"])
    rights(metadata, "group acme/a").authorise(GROUP_DECIDE, asked)
    for scopes in ("read,append,trim acme/a user-*", "read acme/a", "group acme/b"):
        with pytest.raises(Unauthorized, match="needs the verb group on log acme/a"):
            rights(metadata, scopes).authorise(GROUP_DECIDE, asked)


@pytest.mark.parametrize(
    ("given", "scopes", "is_allowed"),
    [
        ({}, ("group acme/a",), True),
        ({"on_dead": "dead_letter:acme/b"}, ("group acme/a",), False),
        ({"on_dead": "dead_letter:acme/b"}, ("group acme/a", "append acme/b"), True),
        ({"on_dead": "dead_letter:acme/b"}, ("group acme/a", "read acme/b"), False),
        ({"on_dead": "dead_letter:acme/b"}, ("group acme/a", "append acme/b u*"), False),
        ({"on_dead": "dead_letter:acme/b", "prefix": b"us"},
         ("group acme/a", "append acme/b u*"), True),
        ({"on_dead": "dead_letter:acme/b", "prefix": b"v"},
         ("group acme/a", "append acme/b u*"), False),
        ({"on_dead": "dead_letter:acme/b", "patterns": [b"/", [b"us/*", b"ut/>"]]},
         ("group acme/a", "append acme/b u*"), True),
        ({"on_dead": "dead_letter:acme/b", "patterns": [b"/", [b"us/*", b"v/>"]]},
         ("group acme/a", "append acme/b u*"), False),
        ({"on_dead": "dead_letter:acme/b"}, ("group acme/a", "append *"), True),
    ],
)  # fmt: skip
def test_dead_letters_need_the_right_to_append_the_keys_of_the_group(
    metadata: Metadata, given: dict[str, Any], scopes: tuple[str, ...], is_allowed: bool
) -> None:
    asked = body(GROUP_CREATE, log="acme/a", name="g", **given)
    app = rights(metadata, *scopes)
    if is_allowed:
        app.authorise(GROUP_CREATE, asked)
    else:
        with pytest.raises(Unauthorized, match="append"):
            app.authorise(GROUP_CREATE, asked)


def test_no_client_makes_nodes_write_to_a_log_of_the_cluster(metadata: Metadata) -> None:
    reserved = Reserved(lambda: metadata)
    for log in ("_audit", "_usage"):
        asked = body(GROUP_CREATE, log="acme/a", name="g", on_dead=f"dead_letter:{log}")
        with pytest.raises(Unauthorized, match=f"only the cluster writes log {log}"):
            reserved.check(GROUP_CREATE, asked)
    for on_dead in ("park", "dead_letter:acme/b"):
        reserved.check(GROUP_CREATE, body(GROUP_CREATE, log="acme/a", name="g", on_dead=on_dead))


def test_a_batch_with_acks_needs_both_verbs_for_the_keys_of_each(metadata: Metadata) -> None:
    asked = body(GROUP_APPEND, group=1, consumer=1, acks=[[b"user-1", 1, 1, 2]], batch=b"")
    allowed = rights(metadata, "read acme/a user-*", "append acme/a out-*").authorise(
        GROUP_APPEND, asked
    )
    assert allowed is not None
    assert allowed.keys is not None
    assert [allowed.keys.has(key) for key in (b"out-1", b"user-1")] == [True, False]
    for scopes in (("append acme/a",), ("read acme/a x*", "append acme/a"), ("read acme/a",)):
        with pytest.raises(Unauthorized):
            rights(metadata, *scopes).authorise(GROUP_APPEND, asked)


def test_only_who_may_append_to_a_key_may_take_a_turn_to_update_it(metadata: Metadata) -> None:
    turn = body(LATEST, key=b"user-1", turn="take")
    rights(metadata, "read,append acme/a user-*").authorise(LATEST, turn)
    for scopes in (("read acme/a user-*",), ("read acme/a *", "append acme/a other-*")):
        reader = rights(metadata, *scopes)
        reader.authorise(LATEST, body(LATEST, key=b"user-1"))
        with pytest.raises(Unauthorized):
            reader.authorise(LATEST, turn)


def test_a_scope_of_keys_of_all_logs_holds_for_these_keys_alone(metadata: Metadata) -> None:
    app = rights(metadata, "read,append * user-*")
    app.authorise(LATEST, body(LATEST, key=b"user-1"))
    with pytest.raises(Unauthorized):
        app.authorise(LATEST, body(LATEST, key=b"x"))
    allowed = app.authorise(APPEND, body(APPEND, batches=[b""]))
    assert allowed is not None
    assert allowed.keys is not None
    assert not allowed.keys.has(b"x")


def test_keys_of_a_whole_range_are_those_of_its_span(metadata: Metadata) -> None:
    """Where the principal may use all keys of the range, the request need not name them."""
    upper = [scope for letter in "mnopqrstuvwxyz" for scope in [f"read acme/b {letter}*"]]
    app = rights(metadata, *upper)
    spans = KeySpans([(b"m", b"{")])
    assert spans.covers(b"m", b"{")
    with pytest.raises(Unauthorized):  # the range has keys above `z...`
        app.authorise(READ_SPAN, body(READ_SPAN, range=3))
    app.authorise(READ_SPAN, body(READ_SPAN, range=3, end_key=b"{"))
    with pytest.raises(Unauthorized):
        app.authorise(READ_SPAN, body(READ_SPAN, range=2, end_key=b"{"))
    old = {**body(READ_SPAN, range=3, end_key=b"{"), "generation": 7}
    with pytest.raises(Unauthorized):  # of another generation the span is not known
        app.authorise(READ_SPAN, old)


def test_batches_may_have_the_keys_of_the_scope(metadata: Metadata) -> None:
    asked = body(APPEND, batches=[b""])
    app = rights(metadata, "append acme/a a*", "append acme/a x", "read")
    keys = keys_of(app.authorise(APPEND, asked))
    assert keys is not None
    assert keys.has_all([b"a", b"ab", b"x"])
    assert not keys.has_all([b"a", b"b"])
    assert not keys.has_all([b"xx"])
    assert keys_of(rights(metadata, "append acme/a").authorise(APPEND, asked)) is None
    assert keys_of(rights(metadata, "append").authorise(APPEND, asked)) is None


def keys_of(allowed: Allowed | None) -> KeySpans | None:
    assert allowed is not None
    return allowed.keys


NAMING: dict[Operation, dict[str, int]] = {
    FENCE: {"id": 5, "epoch": 1}, PRODUCER_CLOSE: {"id": 5},
    PRODUCER_NUMBER: {"producer": 5, "number": 1},
}  # fmt: skip


@pytest.mark.parametrize("operation", NAMING, ids=str)
def test_S8_S9_only_its_owner_fences_closes_or_asks_of_a_producer(
    metadata: Metadata, operation: Operation
) -> None:
    """A stranger closed another's producer, and the retry of a record was applied twice."""
    own, named = grant(KEY, 4, 2, "app"), NAMING[operation]
    owner = rights(metadata, "append acme/a")
    everything = rights(metadata, "all", principal="stranger")
    owner.authorise(operation, body(operation, **named, grant=own))
    owner.authorise(operation, body(operation, **named, grant=own))  # this time known
    for asker, shown, why in (
        (owner, None, "does not cover producer id"),
        (owner, grant(KEY, 6, 9, "app"), "does not cover producer id 5"),
        (owner, grant(KEY, 1, 4, "app"), "does not cover producer id 5"),
        (owner, grant(b"another key 1234", 4, 2, "app"), "did not give app the grant"),
        (owner, own[:-1] + bytes([own[-1] ^ 1]), "did not give app the grant"),
        (owner, bytes([own[0] ^ 1]) + own[1:], "did not give app the grant"),
        (everything, own, "did not give stranger the grant"),
        (everything, None, "does not cover producer id"),
    ):
        with pytest.raises(Unauthorized, match=why):
            asker.authorise(operation, body(operation, **named, grant=shown))


def test_S8_batches_may_have_the_ids_of_the_grant(metadata: Metadata) -> None:
    own = grant(KEY, 4, 2, "app")
    for scope in ("append", "append acme/a x*"):
        app = rights(metadata, scope)
        allowed = app.authorise(APPEND, body(APPEND, batches=[b""], grant=own))
        assert allowed is not None
        assert allowed.producers == range(4, 6)
        without = app.authorise(APPEND, body(APPEND, batches=[b""]))
        assert without is not None
        assert not len(without.producers)


def test_a_node_that_cannot_check_grants_yet_says_so() -> None:
    controller = Controller().nodes(1)
    controller.do("create_log", name="acme/a")
    app = rights(controller.metadata, "append")
    with pytest.raises(Unavailable) as caught:
        app.authorise(APPEND, body(APPEND, batches=[b""], grant=GRANT))
    assert caught.value.retryable
    app.authorise(APPEND, body(APPEND, batches=[b""]))


def test_many_grants_are_not_all_kept(metadata: Metadata) -> None:
    app = rights(metadata, "append")
    for first in range(3_000):
        shown = grant(KEY, first, 1, "app")
        app.authorise(FENCE, body(FENCE, id=first, epoch=1, grant=shown))
    assert len(app._grants) <= 1_024


def test_a_fence_needs_any_keys_of_the_log(metadata: Metadata) -> None:
    asked = body(FENCE, id=1, epoch=1, grant=GRANT)
    assert rights(metadata, "append acme/a a*").authorise(FENCE, asked) is None
    with pytest.raises(Unauthorized):
        rights(metadata, "read acme/a", "append acme/b").authorise(FENCE, asked)


def test_a_range_of_which_this_node_knows_nothing_is_not_found(metadata: Metadata) -> None:
    with pytest.raises(RangeNotFound):
        rights(metadata, "read acme/*").authorise(SCAN, body(SCAN, range=99, key=b"k"))
    rights(metadata, "read").authorise(SCAN, body(SCAN, range=99, key=b"k"))


def test_the_log_of_a_range_that_was_split_is_known_by_its_parts() -> None:
    controller = Controller().nodes(1)
    controller.do("create_log", name="acme/a")
    metadata = controller.metadata
    child = next(iter(metadata.ranges.values()))
    image = metadata.image()
    image["ranges"][0]["lineage"] = [[7, 1, 1, 1, 1, 0, b""]]
    read = Metadata.from_image(image)
    assert read.descendants(7)[0].log_id == child.log_id
    rights(read, "read acme/*").authorise(SCAN, body(SCAN, range=7, key=b"k"))
    with pytest.raises(Unauthorized):
        rights(read, "read other").authorise(SCAN, body(SCAN, range=7, key=b"k"))


def test_metadata_shows_the_logs_of_the_principal_alone(metadata: Metadata) -> None:
    answer = {
        "version": 9,
        "logs": [{"id": r.log_id, "name": r.name} for r in metadata.logs.values()],
        "ranges": [r.to_wire() for r in metadata.ranges.values()],
    }
    shown = visible(METADATA, rights(metadata, "trim acme/b"), answer, metadata)
    assert [log["name"] for log in shown["logs"]] == ["acme/b"]
    assert [range_["id"] for range_ in shown["ranges"]] == [2, 3]
    assert shown["version"] == 9
    assert visible(METADATA, rights(metadata, "read"), answer, metadata) == answer
    page = {"version": 9, "ranges": answer["ranges"], "next": 4}
    shown = visible(RANGES, rights(metadata, "trim acme/b"), page, metadata)
    assert shown == {**page, "ranges": answer["ranges"][1:3]}
    assert visible(RANGES, rights(metadata, "read"), page, metadata) == page
    with pytest.raises(Unauthorized):
        rights(metadata, "read acme/*").authorise(METADATA, body(METADATA, log="other"))
    with pytest.raises(Unauthorized):  # whether such a log exists is not told either
        rights(metadata, "read acme/*").authorise(METADATA, body(METADATA, log="nothing"))


Bounds = list[tuple[int, bytes, bytes | None]]


@pytest.mark.parametrize(
    ("scopes", "bounds"),
    [
        (["read acme/b"], [(2, b"", b"m"), (3, b"m", None)]),
        (["trim acme/b x*"], [(3, b"x", b"y")]),
        (["append acme/b a*"], [(2, b"a", b"b")]),
        (["append acme/b m*"], [(3, b"m", b"n")]),
        (["read acme/b l*", "append acme/b m*"], [(2, b"l", b"m"), (3, b"m", b"n")]),
        (["read acme/b a*", "append acme/b c*"], [(2, b"a", b"d")]),
        (["read acme/b a*", "append acme/b x"], [(2, b"a", b"b"), (3, b"x", b"x\0")]),
        (["read acme/b a*", "describe"], [(2, b"a", b"b")]),
        (["describe acme/b"], []),
        (["read acme/b a*", "admin acme/b"], [(2, b"", b"m"), (3, b"m", None)]),
    ],
)  # fmt: skip
def test_bounds_of_ranges_are_no_wider_than_the_keys_of_the_principal(
    metadata: Metadata, scopes: list[str], bounds: Bounds
) -> None:
    """Bounds are keys: they are not for those who may not use them."""
    met = [{**r.to_wire(), "met_at": [b"k"]} for r in metadata.ranges.values()]
    access = rights(metadata, *scopes)

    def shown(rows: list[dict[str, Any]]) -> Bounds:
        for row in rows:
            assert row["met_at"] == ([b"k"] if access.routed("acme/b", b"") is None else [])
        return [(row["id"], row["start"], row["end"]) for row in rows if row["log"] == 2]

    for operation in (METADATA, RANGES):
        answer = visible(operation, access, {"version": 9, "ranges": met}, metadata)
        assert shown(answer["ranges"]) == bounds
    error = GenerationMismatch("range 2 has ended", ranges=met[1:3])
    Visible(lambda: metadata).clip(access, error)
    assert shown(error.fields["ranges"]) == bounds
    assert met[1]["met_at"] == [b"k"], "what others see is as it was"
    Visible(lambda: metadata).clip(None, error)  # of a node


@pytest.mark.parametrize(
    ("pattern", "count"),
    [(b"k" * 480, 1), (b"\xff" * 480, 1), (b"k" * 480 + b"*", 1), (b"k" * 479, 1), (b"k" * 481, 0)],
)  # fmt: skip
def test_bounds_of_the_longest_keys_fit_the_table(
    metadata: Metadata, pattern: bytes, count: int
) -> None:
    token = tokens.draw()
    scope = Scope(frozenset({"read"}), "acme/a", pattern)
    record = TokenRecord(tokens.id_of(token), "app", (scope,), tokens.digest_of(token))
    access = Rights(record, lambda: metadata)
    asked = Visible(lambda: metadata).asked(access, body(METADATA, log="acme/a"))
    view = SimpleNamespace(
        metadata=metadata, leader=lambda *_: None, insecure={}, known=(0, metadata.version)
    )

    async def nothing() -> None:
        return None

    answer = asyncio.run(MetadataService(view, nothing).metadata(asked, nothing))  # type: ignore[arg-type]
    shown = METADATA.check_answer(visible(METADATA, access, answer, metadata))
    assert len(shown["ranges"]) == len(shown["keys"]) == count
    for row in shown["ranges"]:
        assert KeySpans([(row["start"], row["end"])]).has(pattern[:480])


def test_metadata_is_asked_with_the_keys_of_the_principal(metadata: Metadata) -> None:
    """Whatever the client says of them."""
    shown, access = Visible(lambda: metadata), rights(metadata, "read acme/b x*", "read acme/a")
    assert "spans" not in body(METADATA, log="acme/b", spans=None)
    asked = shown.asked(access, body(METADATA, log="acme/b"))
    assert asked["spans"].rows == [(b"x", b"y")]
    assert shown.asked(access, body(METADATA, log="acme/a"))["spans"] is None
    assert "spans" not in shown.asked(None, body(METADATA, log="acme/b"))


def test_a_refusal_does_not_tell_where_a_range_begins_or_ends(metadata: Metadata) -> None:
    """Where the range has none of the keys asked for, the answer would say that the bound of the
    range lies behind them."""
    user = rights(metadata, "read acme/b user-*")
    for start, end in ((b"a", b"c"), (b"l", b"n"), (b"a", b"z"), (b"l", b"user-"), (b"v", b"w")):
        for range_id in (2, 3):
            for operation, more in (
                (READ_SPAN, {}), (EXPORT, {}), (FOLLOW, {}), (RESOLVE, {"start": "latest"}),
            ):  # fmt: skip
                asked = body(operation, range=range_id, start_key=start, end_key=end, **more)
                with pytest.raises(Unauthorized):
                    user.authorise(operation, asked)
    own = {"start_key": b"user-", "end_key": b"user-5"}
    for range_id in (2, 3):
        user.authorise(READ_SPAN, body(READ_SPAN, range=range_id, **own))


def test_status_shows_the_logs_of_the_principal_and_keys_that_it_may_read(
    metadata: Metadata,
) -> None:
    def range_row(range_id: int, log: str, start: bytes, end: bytes | None) -> dict[str, Any]:
        last = {"kind": "split", "reason": "at key m"} if range_id == 3 else None
        return {"id": range_id, "log": log, "start": start, "end": end,
                "hot_key": {"key": b"m"}, "last_operation": last}  # fmt: skip

    status = {
        "cluster": {"id": "c"},
        "nodes": [{"id": 1}],
        "logs": [{"id": r.log_id, "name": r.name} for r in metadata.logs.values()],
        "ranges": [
            range_row(0, "", b"", None),
            *(
                range_row(r.range_id, metadata.logs[r.log_id].name, *r.span)
                for r in metadata.ranges.values()
            ),
        ],
        "operations": [
            {"id": 5, "ranges": [2], "reason": "at key m"},
            {"id": 6, "ranges": [4], "reason": "at key m"},
        ],
        "replicas": [{"range": n} for n in (1, 2, 3, 4)],
        "damaged": [{"range": 4, "reason": "at key m"}],
    }
    before = copy.deepcopy(status)
    shown = visible(STATUS, rights(metadata, "describe acme/b"), status, metadata)
    assert [log["name"] for log in shown["logs"]] == ["acme/b"]
    assert shown["ranges"] == [
        {"id": 2, "log": "acme/b", "last_operation": None},
        {"id": 3, "log": "acme/b", "last_operation": {"kind": "split", "reason": None}},
    ]
    assert shown["operations"] == [{"id": 5, "ranges": [2]}]
    assert shown["replicas"] == [{"range": 2}, {"range": 3}]
    assert (shown["damaged"], shown["nodes"]) == ([], [{"id": 1}])
    reader = visible(STATUS, rights(metadata, "describe,read acme/b"), status, metadata)
    assert reader["ranges"] == status["ranges"][2:4]
    assert reader["operations"] == status["operations"][:1]
    everything = visible(STATUS, rights(metadata, "describe", "read acme/b"), status, metadata)
    assert [log["id"] for log in everything["logs"]] == [1, 2, 3]
    assert [("start" in row) for row in everything["ranges"]] == [False, False, True, True, False]
    assert ["reason" in row for row in everything["operations"]] == [True, False]
    assert everything["damaged"] == [{"range": 4}]
    of_keys = visible(STATUS, rights(metadata, "describe", "read acme/b x*"), status, metadata)
    assert not any("start" in row for row in of_keys["ranges"])
    assert visible(STATUS, rights(metadata, "describe,read"), status, metadata) == status
    assert status == before
