"""A verb: its name, its arguments, and its work with a client."""

from argparse import Namespace
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from ..client import AsyncClient
from .parser import Parser, add_common, tls_of, token_of
from .printer import Printer


@dataclass(frozen=True, slots=True)
class Call:
    """One run of a verb. `note` writes a line for people, to stderr."""

    client: AsyncClient
    options: Namespace
    printer: Printer
    note: Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Verb:
    """`name` is one word or two; `run` returns the exit code or None for 0."""

    name: str
    help: str
    run: Callable[[Call], Awaitable[int | None]]
    arguments: Callable[[Parser], None]
    writes: bool = False

    def parser(self) -> Parser:
        """Return the verb's parser, with the flags of all verbs."""
        parser = Parser(prog=f"lognode {self.name}", description=self.help)
        self.arguments(parser)
        add_common(parser)
        return parser


def client_of(options: Namespace) -> AsyncClient:
    """Return a client with the flags of all verbs. Raises the errors of `tls_of`, `token_of`."""
    return AsyncClient(
        options.server, tls=tls_of(options), token=token_of(options), timeout=options.timeout
    )
