"""`lognode node list`, `node drain`, `node remove`, `node rekey`, and invitations of nodes."""

from pathlib import Path

from ..protocol.private_files import write_private
from .parser import Parser, age_ms, whole
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
    parser.add_argument("node", type=whole, metavar="NODE", help="its id")
    parser.add_argument("--undo", action="store_true", help="give it up: the node is ACTIVE again")
    parser.add_argument("--no-wait", action="store_true", help="return when it is begun")


async def _drain(call: Call) -> None:
    options = call.options
    now = await call.client.admin.drain(options.node, undo=options.undo, wait=not options.no_wait)
    if options.no_wait and now["replicas"] and not options.undo:
        call.note(f"note: {now['replicas']} replicas are to leave; `lognode node list` shows them")
    call.printer.record(now, _NOW)


def _remove_arguments(parser: Parser) -> None:
    parser.add_argument("node", type=whole, metavar="NODE", help="its id, which never comes back")
    parser.add_argument("--dead", action="store_true",
                        help="it is DEAD for good: others get its replicas at once")  # fmt: skip


async def _remove(call: Call) -> None:
    options = call.options
    lost = ", which is DEAD, and all that is on it" if options.dead else ""
    confirm(call, f"remove node {options.node}{lost} from the cluster for good?")
    call.printer.record(await call.client.admin.remove(options.node, dead=options.dead), _NOW)


def _rekey_arguments(parser: Parser) -> None:
    parser.add_argument("node", type=whole, metavar="NODE", help="its id")
    parser.add_argument("--key", required=True, metavar="FINGERPRINT",
                        help="of the new key, as `lognode ca node` prints it")  # fmt: skip


async def _rekey(call: Call) -> None:
    options = call.options
    confirm(call, f"believe only the holder of the new key to be node {options.node}?")
    call.printer.record(await call.client.admin.rekey(options.node, options.key), _NOW)


def _invite_arguments(parser: Parser) -> None:
    parser.add_argument("--expires", type=age_ms, default=3_600_000, metavar="AGE",
                        help="from now, up to 7d (default 1h)")  # fmt: skip
    parser.add_argument("--out", type=Path, metavar="FILE",
                        help="write it to a file that only its owner may read")  # fmt: skip


async def _invite(call: Call) -> None:
    options = call.options
    made = await call.client.admin.invite_node(expires_s=options.expires / 1000)
    if options.out is None:
        call.note(f"note: invitation {made['id']} is shown this once, and lets one node join; give "
                  "it to the node in a file of mode 0600: --invitation FILE")  # fmt: skip
        call.printer.scalar(made["invitation"])
    else:
        write_private(options.out, f"{made['invitation']}\n".encode())
        call.printer.scalar(made["id"])


async def _invites(call: Call) -> None:
    found = await call.client.admin.invites()
    call.printer.rows(found, ("id", "by", "created_ms", "expires_ms"))


def _uninvite_arguments(parser: Parser) -> None:
    parser.add_argument("id", metavar="ID", help="its part before the first dot")


async def _uninvite(call: Call) -> None:
    await call.client.admin.uninvite_node(call.options.id)


VERBS = (
    Verb("node list", "the nodes of the cluster", _list, _nothing),
    Verb("node drain", "give all that a node has to others", _drain, _drain_arguments, True),
    Verb("node remove", "take a node out of the cluster for good", _remove, _remove_arguments,
         True),
    Verb("node rekey", "bind a node to another TLS key", _rekey, _rekey_arguments, True),
    Verb("node invite", "let one new node join", _invite, _invite_arguments, True),
    Verb("node invites", "the invitations that no node has used", _invites, _nothing),
    Verb("node uninvite", "take an invitation back", _uninvite, _uninvite_arguments, True),
)  # fmt: skip
