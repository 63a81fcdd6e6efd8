"""`lognode node list`, `node drain`, `node remove`, `node rekey`, and invitations of nodes."""

from collections.abc import Awaitable, Callable
from pathlib import Path

from ..client import AsyncClient
from ..protocol.private_files import write_private
from .parser import Parser, age_ms, whole
from .progress import Step, watched
from .verb import Call, Verb
from .verbs_logs import confirm

NODE = ("id", "address", "http", "zone", "state", "replicas")
"""The columns of a node."""
_NOW = ("node", "state", "replicas")


def _nothing(_: Parser) -> None:
    return None


async def _list(call: Call) -> None:
    call.printer.rows(await call.client.admin.nodes(), (*NODE, "insecure"))


def _drain_arguments(parser: Parser) -> None:
    parser.add_argument("node", type=whole, metavar="NODE", help="id of the node")
    parser.add_argument(
        "--undo", action="store_true", help="end the drain: the node is ACTIVE again"
    )
    parser.add_argument("--no-wait", action="store_true", help="return when the drain begins")


async def _drain(call: Call) -> None:
    options = call.options
    now = await watched(
        f"node {options.node}",
        call.client.admin.drain(options.node, undo=options.undo, wait=not options.no_wait),
        _leaving(call.client, options.node),
    )
    if options.no_wait and now["replicas"] and not options.undo:
        call.note(
            f"note: {now['replicas']} replicas have to leave the node; `lognode node list` "
            "shows the count"
        )
    call.printer.record(now, _NOW)


def _leaving(client: AsyncClient, node: int) -> Callable[[], Awaitable[Step]]:
    """Return what looks how many replicas a node still has."""
    most = 0

    async def look() -> Step:
        nonlocal most
        found = (row["replicas"] for row in await client.admin.nodes() if row["id"] == node)
        left = next(found, 0)
        most = max(most, left)
        return Step(1 - left / most if most else None, f"replicas left: {left}")

    return look


def _remove_arguments(parser: Parser) -> None:
    parser.add_argument(
        "node", type=whole, metavar="NODE", help="id of the node, which never returns"
    )
    parser.add_argument("--dead", action="store_true",
                        help="the node is DEAD for ever: other nodes get its replicas "
                             "at once")  # fmt: skip


async def _remove(call: Call) -> None:
    options = call.options
    lost = ", which is DEAD, and all data on the node" if options.dead else ""
    confirm(call, f"remove node {options.node}{lost} from the cluster for good?")
    call.printer.record(await call.client.admin.remove(options.node, dead=options.dead), _NOW)


def _rekey_arguments(parser: Parser) -> None:
    parser.add_argument("node", type=whole, metavar="NODE", help="id of the node")
    parser.add_argument("--key", required=True, metavar="FINGERPRINT",
                        help="fingerprint of the new key, as `lognode ca node` prints")  # fmt: skip


async def _rekey(call: Call) -> None:
    options = call.options
    confirm(call, f"from now on only the holder of the new key is node {options.node}; continue?")
    call.printer.record(await call.client.admin.rekey(options.node, options.key), _NOW)


def _invite_arguments(parser: Parser) -> None:
    parser.add_argument("--expires", type=age_ms, default=3_600_000, metavar="AGE",
                        help="time until the invitation ends, up to 7d (default 1h)")  # fmt: skip
    parser.add_argument("--out", type=Path, metavar="FILE",
                        help="write the invitation to a file that only its owner may "
                             "read")  # fmt: skip


async def _invite(call: Call) -> None:
    options = call.options
    made = await call.client.admin.invite_node(expires_s=options.expires / 1000)
    if options.out is None:
        call.note(f"note: invitation {made['id']} is shown only now and lets one "
                  "node join; give the node the text in a file of mode 0600: "
                  "--invitation FILE")  # fmt: skip
        call.printer.scalar(made["invitation"])
    else:
        write_private(options.out, f"{made['invitation']}\n".encode())
        call.printer.scalar(made["id"])


async def _invites(call: Call) -> None:
    found = await call.client.admin.invites()
    call.printer.rows(found, ("id", "by", "created_ms", "expires_ms"))


def _uninvite_arguments(parser: Parser) -> None:
    parser.add_argument(
        "id", metavar="ID", help="id of the invitation: its part before the first dot"
    )


async def _uninvite(call: Call) -> None:
    await call.client.admin.uninvite_node(call.options.id)


VERBS = (
    Verb("node list", "list the nodes of the cluster", _list, _nothing),
    Verb("node drain", "move all replicas and leads of a node to other nodes", _drain,
         _drain_arguments, True),
    Verb("node remove", "remove a node from the cluster for ever", _remove, _remove_arguments,
         True),
    Verb("node rekey", "bind a node to another TLS key", _rekey, _rekey_arguments, True),
    Verb("node invite", "make an invitation that lets one new node join", _invite,
         _invite_arguments, True),
    Verb("node invites", "list the invitations that no node has used", _invites, _nothing),
    Verb("node uninvite", "revoke an invitation", _uninvite, _uninvite_arguments, True),
)  # fmt: skip
