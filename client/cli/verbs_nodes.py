"""`lognode node list`, `node drain`, `node remove` and `node rekey`."""

from .parser import Parser, whole
from .verb import Call, Verb
from .verbs_logs import confirm

NODE = ("id", "address", "http", "zone", "state", "replicas")
"""Columns of a node."""
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


VERBS = (
    Verb("node list", "the nodes of the cluster", _list, _nothing),
    Verb("node drain", "give all that a node has to others", _drain, _drain_arguments, True),
    Verb("node remove", "take a node out of the cluster for good", _remove, _remove_arguments,
         True),
    Verb("node rekey", "bind a node to another TLS key", _rekey, _rekey_arguments, True),
)  # fmt: skip
