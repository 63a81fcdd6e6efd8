"""Messages to a simulated process over the network, and their handlers by kind."""

from typing import TYPE_CHECKING, Any

from ...raft.types import GroupId
from .duties import Duties
from .member import (
    ANSWERS,
    BASE,
    BASE_INSTALLED,
    BASE_WANTED,
    CONTROLLER,
    FILE,
    FILE_WANTED,
    HEARTBEAT,
    NEWS,
    RAFT,
    READS,
    REPORT,
    Member,
)
from .membership import Membership

if TYPE_CHECKING:
    from .host import Host


def take(
    host: "Host", duties: Duties, membership: Membership | None, sender: int, payload: Any
) -> None:
    """Handle one message of a peer. A ping has only its header."""
    kind, (range_id, generation), body, _ = payload
    gid = GroupId(range_id, generation)
    if kind == RAFT:
        _take_raft(host, sender, host.member(gid), body)
    elif kind == READS:
        host.send(sender, ANSWERS, gid, host.reads.answer(sender, body))
    elif kind == ANSWERS:
        host.reads.answered(sender, body)
    elif kind == BASE_WANTED:
        duties.serve(sender, gid)
    elif kind == BASE:
        duties.take(sender, gid, body)
    elif kind == FILE_WANTED and host.repairs is not None:
        host.repairs.serve(sender, gid, body)
    elif kind == FILE and host.repairs is not None:
        host.repairs.take(sender, gid, body)
    elif kind == BASE_INSTALLED:
        member = host.member(gid)
        if member is not None:
            member.group.base_installed(sender)
            host.touch(member)
    elif membership is not None:
        _take_metadata(membership, sender, kind, gid, body)


def _take_raft(host: "Host", sender: int, member: Member | None, body: Any) -> None:
    fingerprint, message = body
    host.world.trace.note(host.name, "recv", "n%d %s", sender, message)
    if member is not None and member.fingerprint == fingerprint:
        member.group.receive(sender, message)
        host.touch(member)


def _take_metadata(membership: Membership, sender: int, kind: int, gid: GroupId, body: Any) -> None:
    if kind == NEWS:
        membership.take_news(sender, body)
    elif kind == HEARTBEAT:
        membership.take_heartbeat(sender, body)
    elif kind == REPORT:
        membership.take_report(sender, body)
    elif kind == CONTROLLER:
        membership.take_controller(sender, gid, body)
