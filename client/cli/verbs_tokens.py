"""`lognode token create`, `token list` and `token revoke`."""

from pathlib import Path

from ..protocol import scopes
from ..protocol.private_files import write_private
from .parser import Parser, rule_ms
from .verb import Call, Verb
from .verbs_logs import confirm

_TOKEN = ("id", "principal", "certificate", "scopes", "expires_ms", "quota_class", "scram")


def _nothing(_: Parser) -> None:
    return None


def _create_arguments(parser: Parser) -> None:
    parser.add_argument(
        "principal", metavar="PRINCIPAL", help="name of the principal, which quotas and logs show"
    )
    parser.add_argument("--scope", action="append", required=True, metavar="'VERBS [LOG [KEYS]]'",
                        help=f"permissions: verbs ({', '.join(scopes.VERBS)}, or "
                             "all), a log or PREFIX*, keys or PREFIX*; give the "
                             "option again for more scopes")  # fmt: skip
    parser.add_argument("--expires", type=rule_ms, metavar="AGE",
                        help="time until the token ends, as 90d (default none: never)")  # fmt: skip
    parser.add_argument("--quota-class", default="default", metavar="CLASS",
                        help="quota of the principal (default default)")  # fmt: skip
    parser.add_argument("--certificate", metavar="'client NAME'",
                        help="give the rights to the holder of this certificate "
                             "instead of a token; 'name COMMON-NAME' for a "
                             "certificate of another CA")  # fmt: skip
    parser.add_argument("--scram", action="store_true",
                        help="let Kafka clients prove the token with SASL SCRAM, too: "
                             "the user name is the id, the password the token")  # fmt: skip
    parser.add_argument("--out", type=Path, metavar="FILE",
                        help="write the token to a file that only its owner may read")  # fmt: skip


async def _create(call: Call) -> None:
    options = call.options
    certificate = options.certificate
    if certificate is not None and " " not in certificate:
        certificate = f"client {certificate}"
    made = await call.client.admin.create_token(
        options.principal, options.scope, certificate=certificate, quota_class=options.quota_class,
        scram=options.scram,
        expires_s=None if options.expires is None else options.expires / 1000,
    )  # fmt: skip
    if made["token"] is None:
        call.printer.scalar(made["id"])
    elif options.out is None:
        call.note(
            f"note: token {made['id']} is shown only now; keep the text in a file of mode 0600"
        )
        call.printer.scalar(made["token"])
    else:
        write_private(options.out, f"{made['token']}\n".encode())
        call.printer.scalar(made["id"])


async def _list(call: Call) -> None:
    call.printer.rows(await call.client.admin.tokens(), _TOKEN)


def _revoke_arguments(parser: Parser) -> None:
    parser.add_argument("id", metavar="ID", help="id of the token: its part before the dot")


async def _revoke(call: Call) -> None:
    token_id = call.options.id
    confirm(call, f"revoke token {token_id}, and end the connections that use the token?")
    await call.client.admin.revoke_token(token_id)


VERBS = (
    Verb("token create", "make a token for a client", _create, _create_arguments, True),
    Verb("token list", "list the tokens, without their secrets", _list, _nothing),
    Verb("token revoke", "revoke a token", _revoke, _revoke_arguments, True),
)
