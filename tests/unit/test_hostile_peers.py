"""Malformed answers of other nodes: each costs what was asked for, and ends nothing.

A fake member, or one of another version, may answer anything. Each of these ended the node that had
asked: its part raised KeyError or TypeError, which nobody expects.
"""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lognode.client import connection
from lognode.client.cluster import _address_of
from lognode.client.protocol import Operation
from lognode.client.protocol.errors import (
    InvalidArgument,
    LognodeError,
    NotLeader,
    Overloaded,
    RemoteProtocolError,
    Unavailable,
    from_wire,
    to_wire,
)
from lognode.client.protocol.frame import encode
from lognode.client.protocol.peers import BOOTSTRAP, JOIN
from lognode.node.control import images as images_of
from lognode.node.control.heartbeat import Heartbeat
from lognode.node.control.images import Images
from lognode.node.control.lead_balance import LeadBalance
from lognode.node.directory.data_directory import Identity
from lognode.node.directory.disk_room import DiskRoom
from lognode.node.joining.joining import _taken_in
from lognode.node.lifecycle.base_transfer import BaseFetcher, _pause_s
from lognode.node.metadata import image_pages
from lognode.node.metadata.view import View
from lognode.node.replicas.pinned_files import PinnedFiles
from lognode.node.runtime.sync_thread import SyncThread
from lognode.partitions import buckets
from lognode.partitions.facts import Facts
from lognode.partitions.leads import Given
from lognode.partitions.levels import Program
from lognode.partitions.metadata import Metadata
from lognode.partitions.model import CONTROLLER_RANGE, NodeRecord
from lognode.raft.types import GroupId
from lognode.statemachine.meta import LmdbMeta

BIG = (1 << 64) - 1
STRANGE: tuple[Any, ...] = (
    None, True, -1, 1 << 63, BIG, 1.5, float("inf"), float("nan"), "text", b"bytes", [], [None],
    [[1, 2, 3]], [1, 2], {}, {"a": 1}, {1: [2]}, {BIG: [1, 1, 1]}, {0: [BIG, BIG, 9]}, [[]],
    [[1, 2, 3, 4, 5]], [[0, BIG, BIG, 9]],
    {2: [[1, 2, 3]]}, {2: [[float("inf"), 1, "x"]]}, {2: -1}, [[1, 2, float("inf")]],
)  # fmt: skip


def variants(body: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Nothing at all; each field missing; each field of every strange value."""
    yield {}
    for name in body:
        yield {other: value for other, value in body.items() if other != name}
        for value in STRANGE:
            yield {**body, name: value}


def test_an_error_from_elsewhere_is_always_one() -> None:
    """`dial` raised TypeError for a hello that was answered so."""
    sound = {"code": "NOT_LEADER", "message": "m", "outcome": "unknown", "fields": {"hint": 3}}
    assert from_wire(sound).fields == {"hint": 3}
    fields = {"message": 1, "outcome": 2, "self": 3, 5: 6, "code": 7}
    error = from_wire({**sound, "fields": fields})
    assert isinstance(error, NotLeader)
    assert error.fields == {"message": 1, "outcome": 2, "self": 3, "code": 7}
    for body in variants(sound):
        error = from_wire(body)
        assert isinstance(error, LognodeError)
        assert error.outcome in ("unknown", "applied", "not_applied")
        to_wire(error)


@pytest.mark.parametrize(
    ("host", "port"),
    [("a..b", 1), ("x" * 64, 1), ("a\0b", 1), ("\udcff", 1), ("localhost", 1 << 70),
     ("localhost", -1), ("localhost", 1 << 31)],
)  # fmt: skip
def test_an_address_that_cannot_be_encoded_is_unavailable(host: str, port: int) -> None:
    async def main() -> None:
        with pytest.raises(Unavailable) as caught:
            await connection.dial(host, port, timeout_s=5.0)
        assert caught.value.retryable

    asyncio.run(main())


def test_an_invalid_unicode_text_is_not_sent() -> None:
    with pytest.raises(InvalidArgument, match="is not valid Unicode"):
        encode(1, JOIN.number, {"zone": "\udcff"})


@pytest.mark.parametrize("address", ["a..b:4600", "h", "", None, 5, "h:1\n"])
def test_clients_pass_over_a_node_that_nobody_can_dial(address: Any) -> None:
    """One such record, and no client got any metadata."""
    assert _address_of({"id": 3, "address": address, "state": "ACTIVE"}) is None
    assert _address_of({"id": 3, "address": "h:1", "state": "REMOVED"}) is None
    assert _address_of({"id": 3, "address": "h:1", "state": "DEAD"}) == ("h", 1)


class Peer:
    """A connection on which every request is answered so."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.lost = None

    async def request(self, operation: Operation, body: Any, *, deadline: float) -> Any:
        """As a connection does: the table checks the answer."""
        if isinstance(self.answer, LognodeError):
            raise self.answer
        return operation.check_answer(self.answer)

    def close(self) -> None:
        """Nothing is open."""


@pytest.fixture
def view(tmp_path: Path) -> Iterator[View]:
    sync = SyncThread("files")
    meta = LmdbMeta(tmp_path / "meta", map_bytes=1 << 20)
    view = View(meta, sync, on_change=lambda: None, present=lambda _: True)
    metadata = Metadata()
    metadata.controller = replace(metadata.controller, generation=4, members=(2, 3, 5))
    for n in (1, 2, 3, 5):
        metadata.nodes[n] = NodeRecord(n, "", "", "", n, 1, "ACTIVE")
    metadata.next_ids["node"] = 6
    metadata.settle()
    view.metadata = metadata
    yield view
    sync.close()
    meta.close()


def images(view: View) -> Images:
    unused: Any = None
    return Images(unused, view)


def heartbeat(view: View, answer: Any) -> Heartbeat:
    parts: dict[str, Any] = {
        "node_id": 1, "view": view, "facts": Facts(),
        "host": SimpleNamespace(controller=None, stored_damage={}, halted={}),
        "connection": lambda _: Peer(answer),
        "room": DiskRoom(1, 100),
        "draining": SimpleNamespace(leads_left=None),
        "large": SimpleNamespace(told=[], small=[]), "hot": SimpleNamespace(told=[]),
        "handover": SimpleNamespace(wishes=lambda _: []),
        "exposure": SimpleNamespace(insecure=False),
        "program": Program(1, 1, 1, 2, "9.9"), "noted": lambda: 1,
        "stored": SimpleNamespace(told=dict, learn=lambda _: None), "images": images(view),
    }  # fmt: skip
    return Heartbeat(**parts)


ANSWER = {"page": None, "leaders": [[0, 4, 7, 2]], "seen": [4, 7, 90], "damaged": [[2, []]],
          "short": [[3, 10]]}  # fmt: skip


def test_a_malformed_answer_to_a_heartbeat_is_an_error_of_its_own(view: View) -> None:
    async def main() -> None:
        told = 0
        for body in variants(ANSWER):
            try:
                await heartbeat(view, body)._ask()
            except LognodeError:
                told += 1
            assert view.metadata.controller.generation == 4
            assert set(map(type, view.damaged)) <= {int}
        assert told > 70

    asyncio.run(main())


def test_a_refusal_of_a_heartbeat_may_hint_at_anything(view: View) -> None:
    async def main() -> None:
        for hint in (*STRANGE, 99, 1):
            with pytest.raises(LognodeError):
                await heartbeat(view, NotLeader("not me", hint=hint))._ask()
            assert view.controller_leader() is None
        with pytest.raises(NotLeader):
            await heartbeat(view, NotLeader("not me", hint=3))._ask()
        assert view.controller_leader() == 3

    asyncio.run(main())


def test_a_hint_of_an_impossible_leader_is_ignored(view: View) -> None:
    """The statement of the highest term holds: one that is false would hold for ever."""
    view.learn_leaders(
        [
            (CONTROLLER_RANGE, 4, 1 << 62, 99),  # no member
            (7, 1 << 62, 1, 2),
            (1 << 62, 1, 1, 2),
        ]
    )
    assert view.controller_leader() is None
    view.learn_leaders([(CONTROLLER_RANGE, 4 + (1 << 25), 1, 3)])
    view.learn(GroupId(CONTROLLER_RANGE, 4), 3, 5)
    assert view.controller_leader() == 5
    view.learn_leaders([(n, 1, 1, 2) for n in range(1, 100_000)])
    assert len(view.leaders.range_ids()) < 20_000, "they are kept: there are not so many ranges"


@pytest.mark.parametrize(
    "row",
    [None, 7, [], [CONTROLLER_RANGE, 4, 1], [CONTROLLER_RANGE, 4, 1, 3, 0],
     [CONTROLLER_RANGE, 4, 1, "3"], [CONTROLLER_RANGE, 4, -1, 3],
     [CONTROLLER_RANGE, 4, 1 << 63, 3], [[], 4, 1, 3]],
)  # fmt: skip
def test_a_row_of_leaders_of_another_shape_is_refused(view: View, row: Any) -> None:
    """The table of messages leaves the rows of leaders to the view, which checks them in steps."""
    with pytest.raises(InvalidArgument, match="leaders"):
        view.learn_leaders([(CONTROLLER_RANGE, 4, 1, 2), row])
    assert view.controller_leader() == 2, "rows before it are learnt"


def test_a_malformed_image_is_not_stored(view: View) -> None:
    async def main() -> None:
        before = view.metadata
        later = buckets.copy(before)
        later.version, later.cluster_id = 9, "c"
        later.settle()
        sound = await image_pages.page_of(later, 0, tables=buckets.PUBLIC)
        for body in variants(sound):
            page = {**body, "next": None}  # it would ask on
            if body.get("full") is not True or page == sound:
                continue
            with pytest.raises(LognodeError):
                await images(view).pull(Peer({"page": page}), images_of.NEWEST)  # type: ignore[arg-type]
        assert view.metadata is before
        assert view._meta.get("image") is None
        await images(view).pull(Peer({"page": sound}), images_of.NEWEST)  # type: ignore[arg-type]
        assert view.metadata.cluster_id == "c"

    asyncio.run(main())


def test_a_malformed_base_is_an_error_of_its_own(tmp_path: Path) -> None:
    """It ended the node that wanted to copy it."""
    sound = {"base": 1, "bytes": 9, "data": b"not packed", "tail_bytes": 5}

    async def main() -> None:
        told = 0
        host: Any = SimpleNamespace(pinned=PinnedFiles())
        unused: Any = None
        for body in variants(sound):
            peer: Any = Peer(body)

            async def dial(_: int, p: Any = peer) -> Any:
                return p

            fetcher = BaseFetcher(
                host=host, store=unused, tmp=tmp_path, sync=unused, connection=lambda _, p=peer: p,
                dial=dial, bucket=unused, metrics=unused,
            )  # fmt: skip
            try:
                await fetcher.fetch(2, GroupId(1, 1), pin="pin")
            except LognodeError:
                told += 1
        assert told >= 2 * len(STRANGE) - 6

    asyncio.run(main())


@pytest.mark.parametrize("wanted", [*STRANGE, 1e300])
def test_a_pause_that_a_peer_asks_for_is_bounded(wanted: Any) -> None:
    assert 0.0 <= _pause_s(Overloaded("later", retry_after=wanted)) <= 30.0


@pytest.mark.parametrize("answer", [{}, {"given": None}, {"given": 5}, {"given": [True]}])
def test_a_lead_that_is_not_said_to_be_given_is_not(answer: Any) -> None:
    async def main() -> None:
        facts = Facts()
        unused: Any = None
        peer: Any = Peer(answer)
        leads = LeadBalance(
            node_id=1, host=unused, view=unused, facts=facts, connection=lambda _: peer,
            handover=unused,
        )  # fmt: skip
        await leads._give(Given(range_id=7, generation=1, from_node=2, to_node=3, reason="why"))
        assert facts.keepers(0.0) == {7: 2}

    asyncio.run(main())


def test_other_nodes_answer_a_starting_node_with_garbage() -> None:
    sound = {"members": ["a:1", "b:1"], "joins": None}
    assert BOOTSTRAP.check_answer(sound)["members"] == ["a:1", "b:1"]
    for body in variants(sound):
        try:
            heard = BOOTSTRAP.check_answer(body)
        except RemoteProtocolError:
            continue
        ", ".join(sorted(heard["members"]))


def test_an_answer_to_a_join_registers_this_node_or_is_refused() -> None:
    metadata = Metadata()
    metadata.apply(1, 1, {"op": "found", "cluster": "c", "node": 1})
    for incarnation in (5, 7):
        register = {"op": "register", "incarnation": incarnation, "address": "h:1"}
        assert "ok" in metadata.apply(2, 1, register)

    async def main() -> None:
        page = await image_pages.page_of(metadata, 0, tables=buckets.PUBLIC)
        image = await image_pages.Assembly().add(page)
        assert image is not None
        await _taken_in(Identity("c", 2, 7, 0), image)
        for cluster, node, incarnation in (("d", 2, 7), ("c", 1, 7), ("c", 9, 7), ("c", 2, 8)):
            with pytest.raises(
                RemoteProtocolError, match="the answer to the join does not register this node"
            ):
                await _taken_in(Identity(cluster, node, incarnation, 0), image)

    asyncio.run(main())
    told = 0
    for body in variants({"cluster": "c", "node": 2}):
        try:
            answer = JOIN.check_answer(body)
            Identity(answer["cluster"].strip(), answer["node"] + 0, 7, 0)
        except RemoteProtocolError:
            told += 1
    assert told > 40
