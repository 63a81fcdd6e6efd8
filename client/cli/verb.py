"""A verb: its name, its arguments, and its work with a client."""

from argparse import Namespace
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from ..client import AsyncClient
from .clusters import where
from .parser import Parser, add_common
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
    """Return a client of the cluster that the flags name. Raises the errors of `where`."""
    found = where(options)
    return AsyncClient(found.server, tls=found.tls, token=found.token, timeout=options.timeout)
