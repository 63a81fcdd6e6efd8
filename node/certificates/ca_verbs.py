"""`lognode ca init`, `ca node` and `ca client`."""

import time
from argparse import Namespace
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from ...client.cli.parser import Parser, UsageError, whole
from ...client.cli.printer import FORMATS, Printer
from . import ca

directory_default: Final = Path("lognode-ca")
_AUTHORITY_DAYS: Final = 3_650
_DAYS: Final = 365
COLUMNS: Final = ("cert", "key", "cluster", "expires", "key_fingerprint", "fingerprint")


def run(arguments: Sequence[str]) -> int:
    """Run the verb that the arguments begin with; return the exit code.

    Raises UsageError, InvalidArgument, Conflict, Unavailable.
    """
    first = arguments[0] if arguments else ""
    found = VERBS.get(first)
    if found is None:
        raise UsageError(f"`lognode ca` needs another word: {' or '.join(VERBS)}")
    options = parser(first).parse(arguments[1:])
    issued, cluster = found[2](options)
    row: dict[str, Any] = {
        "cert": str(issued.cert),
        "key": str(issued.key),
        "cluster": cluster,
        "expires": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(issued.certificate.not_after)),
        "key_fingerprint": issued.certificate.key,
        "fingerprint": issued.certificate.fingerprint.hex(),
    }
    Printer(options.format).record(row, COLUMNS)
    return 0


def parser(name: str) -> Parser:
    """Return the parser of `lognode ca NAME`."""
    help_, add, _ = VERBS[name]
    made = Parser(prog=f"lognode ca {name}", description=help_ + ".")
    add(made)
    made.add_argument("--dir", type=Path, default=directory_default, metavar="DIR",
                      help=f"directory of the CA (default ./{directory_default})")  # fmt: skip
    made.add_argument("--format", choices=FORMATS, default="table", help="default table")
    return made


def _init_arguments(made: Parser) -> None:
    made.add_argument("--cluster", default="lognode", metavar="NAME",
                      help="name of the cluster in all certificates (default lognode)")  # fmt: skip
    made.add_argument("--days", type=whole, default=_AUTHORITY_DAYS, metavar="N",
                      help=f"days that the CA is valid (default {_AUTHORITY_DAYS})")  # fmt: skip


def _init(options: Namespace) -> tuple[ca.Issued, str]:
    made = ca.Authority.create(options.dir, options.cluster, options.days)
    return made.issued, made.cluster


def _leaf_arguments(made: Parser) -> None:
    made.add_argument("--cluster", default="", metavar="NAME",
                      help="name or id of the cluster (default: the cluster of the "
                           "CA)")  # fmt: skip
    made.add_argument("--days", type=whole, default=_DAYS, metavar="N",
                      help=f"days that the certificate is valid (default {_DAYS})")  # fmt: skip
    made.add_argument("--renew", action="store_true",
                      help="replace the certificate, and keep its key")  # fmt: skip


def _node_arguments(made: Parser) -> None:
    made.add_argument("node", metavar="NODE",
                      help="name of the node, or id of a node that is registered "
                           "already")  # fmt: skip
    made.add_argument("--host", action="append", default=[], metavar="H",
                      help="host name or IP address at which clients dial the node; "
                           "give every such name and address")  # fmt: skip
    _leaf_arguments(made)


def _node(options: Namespace) -> tuple[ca.Issued, str]:
    authority = ca.Authority.open(options.dir)
    cluster = options.cluster or authority.cluster
    issued = authority.node(
        options.node, options.host, options.days, cluster=cluster, renew=options.renew
    )
    return issued, cluster


def _client_arguments(made: Parser) -> None:
    made.add_argument("client", metavar="CLIENT", help="name of the client")
    _leaf_arguments(made)


def _client(options: Namespace) -> tuple[ca.Issued, str]:
    authority = ca.Authority.open(options.dir)
    cluster = options.cluster or authority.cluster
    issued = authority.client(options.client, options.days, cluster=cluster, renew=options.renew)
    return issued, cluster


VERBS: Final[
    dict[str, tuple[str, Callable[[Parser], None], Callable[[Namespace], tuple[ca.Issued, str]]]]
] = {
    "init": ("Make a certificate authority for a cluster", _init_arguments, _init),
    "node": ("Make the certificate and the key of a node", _node_arguments, _node),
    "client": ("Make the certificate and the key of a client", _client_arguments, _client),
}
