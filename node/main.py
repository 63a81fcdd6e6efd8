"""The program `lognode`: runs a verb, or a node when no verb is given.

Only the imports that a verb needs are made: reading a key does not wait for LMDB to load.
"""

import argparse
import os
import select
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from ..client.cli import main as verbs
from ..client.cli.parser import Parser, UsageError, whole
from ..client.cli.printer import FORMATS, Printer
from ..client.cli.progress import Progress
from ..client.cli.words import SWITCHES, VALUE_FLAGS, asked, verb_first
from ..client.protocol.errors import LognodeError

_FORMAT = "format of the output (default table)"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    try:
        try:
            return _run(asked(verb_first(arguments)))
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        if not _reader_left():
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except UsageError as error:
        sys.stderr.write(f"lognode: {error}\n")
        return 2
    except LognodeError as error:
        sys.stderr.write(f"lognode: {error.message}\n")
        return 1
    except KeyboardInterrupt:
        return 130


def _reader_left() -> bool:
    """Return whether the reader of the output has closed it, so that nothing can be written."""
    output = select.poll()
    output.register(sys.stdout, select.POLLOUT)
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in output.poll(0))


def _run(arguments: list[str]) -> int:
    if not arguments or arguments[0].startswith("-"):
        return _run_node(arguments)
    if arguments[1:] in (["-h"], ["--help"]) and (told := _verbs_of(arguments[0])):
        sys.stdout.write(told)
        return 0
    if arguments[0] == "dev":
        return _run_dev(arguments[1:])
    if arguments[0] == "init":
        return _write_config(arguments[1:])
    if arguments[0] == "ca":
        return _run_ca(arguments[1:])
    if arguments[0] == "completion":
        return _complete(arguments[1:])
    if arguments[0] == "tier":
        return _run_tier(arguments)
    if arguments[0] == "serve-tier":
        return _serve_tier(arguments[1:])
    if arguments[0] == "verify":
        return _run_verify(arguments[1:])
    if arguments[:2] == ["token", "recover"]:
        return _recover_token(arguments[2:])
    if arguments[:2] == ["config", "show"]:
        return _show_config(arguments[2:])
    return verbs.run(arguments, also=[name for name, _ in (*_LOCAL, *_OF_TIER)])


def _run_node(arguments: Sequence[str]) -> int:
    from . import config

    parser = Parser(
        also=(*VALUE_FLAGS, *SWITCHES),
        prog="lognode",
        usage="lognode [flags of a node] | lognode VERB ...",
        description="Run a node: found a cluster, or join a cluster with --join.",
        epilog=_verbs(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "-V", "--version", action="store_true", help="print the version and end"
    )  # fmt: skip
    config.add_flags(parser)
    options = vars(parser.parse_args(arguments))
    if options.pop("version"):
        from .runtime import compiled
        from .runtime.commit import commit

        known = f" ({commit()})" if commit() else ""
        sys.stdout.write(f"lognode {version('lognode')}{known}\n{compiled.words()}\n")
        return 0
    settings = config.load(options)
    from .runtime.garbage import uncollected

    with uncollected():
        from . import daemon
    return daemon.main(settings)


def _completion_parser() -> Parser:
    from ..client.cli.completion import SHELLS

    parser = Parser(
        prog="lognode completion",
        description="Print the script with which a shell completes verbs and flags.",
    )
    parser.add_argument("shell", choices=SHELLS, metavar="SHELL",
                        help="bash, zsh or fish")  # fmt: skip
    return parser


def _complete(arguments: Sequence[str]) -> int:
    from ..client.cli import completion
    from . import config
    from .tier import tier_verbs

    shell = _completion_parser().parse_args(arguments).shell
    node = Parser(prog="lognode")
    config.add_flags(node)
    parsers = {"": node, **local_parsers()}
    of_cluster = {**verbs.VERBS, **tier_verbs.VERBS}
    parsers |= {name: verb.parser() for name, verb in of_cluster.items()}
    table = {name: completion.flags(parser) for name, parser in parsers.items()}
    sys.stdout.write(completion.script(shell, table))
    return 0


def _verbs() -> str:
    lines = ["verbs (each has --help):"]
    lines += [f"  {name:<16} {text}" for name, text in _described()]
    return "\n".join(lines)


def _described() -> list[tuple[str, str]]:
    of_client = ((verb.name, verb.help) for verb in verbs.VERBS.values())
    return [*_LOCAL, *of_client, *_OF_TIER]


def _verbs_of(first: str) -> str:
    """Return the lines of the verbs whose first of two words is this word, or ""."""
    found = [(name, text) for name, text in _described() if name.startswith(first + " ")]
    lines = [f"  lognode {name:<16} {text}\n" for name, text in found]
    return "".join(["verbs (each has --help):\n", *lines]) if found else ""


_LOCAL = (
    ("dev", "run a cluster on this machine, until Ctrl-C"),
    ("init", "write the configuration file of a node, with every setting explained"),
    ("ca init", "make a small certificate authority for a cluster, for TLS"),
    ("ca node", "make the certificate and the key of a node"),
    ("ca client", "make the certificate and the key of a client"),
    (
        "token recover",
        "make an administrator's token with the data directory of a stopped node",
    ),
    ("config show", "print the settings of a node and their sources"),
    ("completion", "print the script with which bash, zsh or fish completes verbs and flags"),
    ("verify", "check the data directory of a stopped node"),
    ("serve-tier", "answer reads of a cluster's logs from its tier, without the cluster"),
)
"""The verbs that talk to no cluster."""
_OF_TIER = (
    ("tier list", "list the logs that a tier can restore"),
    ("tier verify", "fetch all files that a restore from a tier needs, and check them"),
    ("tier restore", "restore logs from a tier into a cluster, with their seqs"),
)
"""The verbs of `tier.tier_verbs`, so that the help of a node loads no storage."""


def _dev_parser() -> Parser:
    parser = Parser(prog="lognode dev", description="Run a cluster on this machine, until Ctrl-C.")
    parser.add_argument(
        "-n", "--nodes", type=whole, default=3, metavar="N", help="number of nodes (default 3)"
    )
    parser.add_argument("--data", type=Path, default=Path("lognode-dev"), metavar="DIR",
                        help="directory of the data of all nodes (default "
                             "./lognode-dev)")  # fmt: skip
    parser.add_argument("--base-port", type=whole, metavar="P",
                        help="first port; each node has three ports, one after the other: clients, "
                             "peers and HTTP (default: 4600, and 4680 for HTTP)")  # fmt: skip
    parser.add_argument("--tls", action="store_true",
                        help="use TLS, with certificates that are made under --data")  # fmt: skip
    parser.add_argument("--auth", action="store_true",
                        help="require tokens; LOGNODE_SERVER names the file of a "
                             "token")  # fmt: skip
    return parser


def _run_dev(arguments: Sequence[str]) -> int:
    from .local import dev

    options = _dev_parser().parse_args(arguments)
    return dev.run(
        options.nodes, options.data, options.base_port, tls=options.tls, auth=options.auth
    )


def _write_config(arguments: Sequence[str]) -> int:
    from .local import init_file

    return init_file.run(arguments)


def _run_ca(arguments: Sequence[str]) -> int:
    from .certificates import ca_verbs  # the only verbs that load the cryptography package

    return ca_verbs.run(arguments)


def _run_tier(arguments: Sequence[str]) -> int:
    from .tier import tier_verbs  # the only verbs that load the storage

    return verbs.run(arguments, tier_verbs.VERBS)


def _serve_tier(arguments: Sequence[str]) -> int:
    from .serve_tier import serve_verb

    return serve_verb.run(arguments)


def _verify_parser() -> Parser:
    parser = Parser(
        prog="lognode verify",
        description="Check all data in the data directory of a stopped node, and change nothing. "
        "The "
        "exit code is 3 when a check fails.",
    )
    parser.add_argument("directory", type=Path, metavar="DIR")
    parser.add_argument("--format", choices=FORMATS, default="table", help=_FORMAT)
    return parser


def _run_verify(arguments: Sequence[str]) -> int:
    options = _verify_parser().parse_args(arguments)
    from .verify import verify

    progress = Progress("verify, bytes")
    checks = [check.row() for check in verify.verify(options.directory, progress.update)]
    progress.leave()
    Printer(options.format).rows(checks, verify.COLUMNS)
    return 3 if any(check["wrong"] for check in checks) else 0


def _recover_token(arguments: Sequence[str]) -> int:
    from .access import recover_verb

    return recover_verb.run(arguments)


def _config_parser() -> Parser:
    from . import config

    parser = Parser(
        prog="lognode config show",
        description="Print the settings that a node would get from this command line.",
    )
    parser.add_argument("--format", choices=FORMATS, default="table", help=_FORMAT)
    config.add_flags(parser)
    return parser


def _show_config(arguments: Sequence[str]) -> int:
    from . import config

    options = vars(_config_parser().parse_args(arguments))
    printer = Printer(options.pop("format"))
    columns = ("name", "value", "source")
    rows = [dict(zip(columns, row, strict=True)) for row in config.shown(config.load(options))]
    printer.rows(rows, columns)
    return 0


def local_parsers() -> dict[str, Parser]:
    """Return the parsers of the verbs that talk to no cluster, by verb."""
    from .access import recover_verb
    from .certificates import ca_verbs
    from .local import init_file
    from .serve_tier import serve_verb

    return {
        "dev": _dev_parser(),
        "init": init_file.parser(),
        **{f"ca {name}": ca_verbs.parser(name) for name in ca_verbs.VERBS},
        "token recover": recover_verb.parser(),
        "config show": _config_parser(),
        "completion": _completion_parser(),
        "verify": _verify_parser(),
        "serve-tier": serve_verb.parser(),
    }


if __name__ == "__main__":
    sys.exit(main())
