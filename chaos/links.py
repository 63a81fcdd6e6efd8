"""The network of a cluster under test: proxies whose links are cut, poisoned and healed by pair.

There is a proxy for each ordered pair of nodes, and one per node for clients. A node that serves
clients of another protocol has a second proxy for these, its side door, with the faults of the
first. A change is first noted in the wanted state of the link, kept here, and then carried out. A
server that hangs or died can therefore be replaced by a new one in which every link has its wanted
state.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, get_args

from ..client.ports import free_ports
from ..client.protocol.errors import InvalidArgument, Unavailable
from .proxyserver import PROXIES, Choice, Program, ProxyServer, choose
from .toxiproxy import TIMEOUT_S, Stream, ToxiproxyError

__all__ = ["CLIENTS", "PROXIES", "How", "Links", "Pair", "Stream", "new_links"]

Pair = tuple[int, int]
"""The dialling node and the dialled node: requests go from the first to the second."""
CLIENTS: Final = 0
"""The first of a pair whose dialling side is the clients."""
How = Literal["refuse", "drop", "requests", "answers"]
"""refuse: connections are closed, and new ones refused. drop: connections stay and nothing passes,
as with a cable that was pulled. requests, answers: nothing passes in this one direction."""
_LOST: Final[dict[How, tuple[Stream, ...]]] = {
    "drop": ("upstream", "downstream"),
    "requests": ("upstream",),
    "answers": ("downstream",),
}


@dataclass(frozen=True, slots=True)
class _Toxic:
    kind: str
    toxicity: float
    attributes: Mapping[str, int]


@dataclass(slots=True)
class _Link:
    name: str
    listen: str
    upstream: str
    refused: bool = False
    toxics: dict[tuple[str, Stream], _Toxic] = field(default_factory=dict)

    @property
    def sound(self) -> bool:
        return not self.refused and not self.toxics


def new_links(kind: Choice = "auto", *, log_path: Path | None = None) -> "Links":
    """Return links over the server of this kind; `auto`: the real server if there is one.

    Raises InvalidArgument if the real server is required and missing.
    """
    return Links(choose(kind), log_path=log_path)


class Links:
    """All links of one cluster, over one server process.

    Changes by any caller are made one after another. All methods that change something raise
    InvalidArgument for an unknown pair, ToxiproxyError where the server refuses the request, and
    Unavailable where a new server does not serve either.
    """

    def __init__(
        self, program: Program, *, log_path: Path | None = None, timeout_s: float = TIMEOUT_S
    ) -> None:
        """Prepare the links.

        `log_path` takes the server's output; a call that takes longer than `timeout_s` counts as a
        hanging server.
        """
        self._server = ProxyServer(program, log_path=log_path, timeout_s=timeout_s)
        self._links: dict[Pair, _Link] = {}
        self._side_doors: dict[Pair, _Link] = {}
        self._changing = asyncio.Lock()

    @property
    def description(self) -> str:
        """The server's name and version: `toxiproxy 2.12.0` or `embedded`."""
        return self._server.program.description

    @property
    def server(self) -> ProxyServer:
        """The server process."""
        return self._server

    @property
    def pairs(self) -> list[Pair]:
        """All pairs."""
        return list(self._links)

    async def start(
        self, nodes: Mapping[int, str], peers: Mapping[int, str] | None = None,
        side_doors: Mapping[int, str] | None = None,
    ) -> None:  # fmt: skip
        """Start the server, with links for all ordered pairs of nodes and from the clients.

        `nodes` maps each number, from 1, to the address at which the node listens for clients.
        `peers` has the addresses at which nodes listen for other nodes, if these differ;
        `side_doors` those at which nodes listen for clients of another protocol.
        """
        pairs = [(one, other) for other in nodes for one in (CLIENTS, *nodes) if one != other]
        self._links = {
            pair: _Link(
                f"{pair[0]}-{pair[1]}",
                f"127.0.0.1:{port}",
                (nodes if pair[0] == CLIENTS else peers or nodes)[pair[1]],
            )
            for pair, port in zip(pairs, free_ports(len(pairs)), strict=True)
        }
        doors = side_doors or {}
        self._side_doors = {
            (CLIENTS, number): _Link(f"{CLIENTS}-{number}-side", f"127.0.0.1:{port}", address)
            for (number, address), port in zip(
                doors.items(), free_ports(len(doors)) if doors else (), strict=True
            )
        }
        await self._server.start()
        try:
            await _all(map(self._make, self._every))
        except BaseException:
            await self._server.stop()
            raise

    def address(self, pair: Pair) -> str:
        """Return the address that the first of the pair dials to reach the second.

        Raises InvalidArgument.
        """
        return self._link(pair).listen

    def side_door(self, number: int) -> str:
        """Return the address that clients of the other protocol dial to reach a node."""
        return self._side_doors[CLIENTS, number].listen

    async def cut(self, pairs: Collection[Pair], how: How) -> None:
        """Cut these links; a link that is cut in several ways has all of the cuts."""
        if how not in get_args(How):
            raise InvalidArgument(
                f"the cut {how!r} does not exist; the cuts are {', '.join(get_args(How))}"
            )
        if how != "refuse":
            for stream in _LOST[how]:
                await self.toxic(pairs, "timeout", stream=stream, timeout=0)
            return

        async def refuse(link: _Link) -> None:
            link.refused = True
            await self._server.api.update(link.name, enabled=False)

        await self._change(pairs, refuse)

    async def toxic(
        self,
        pairs: Collection[Pair],
        kind: str,
        *,
        stream: Stream = "downstream",
        toxicity: float = 1.0,
        **attributes: Any,
    ) -> None:
        """Put a toxic of Toxiproxy's kinds on a stream of these links, live connections too.

        A second toxic of the same kind on the same stream replaces the first, and the link loses
        its connections.
        """
        given = _Toxic(kind, toxicity, attributes)

        async def add(link: _Link) -> None:
            before = link.toxics.get((kind, stream))
            link.toxics[kind, stream] = given
            try:
                if before is None:
                    await self._add(link, stream, given)
                elif before != given:
                    await self._make(link)
            except ToxiproxyError:
                del link.toxics[kind, stream]  # else new servers would refuse it again
                raise

        await self._change(pairs, add)

    async def heal(self, pairs: Collection[Pair] | None = None) -> None:
        """Remove every fault of these pairs; None: of all pairs.

        Healed links lose their connections, as bytes were lost inside them; links without faults
        keep theirs. A server that hangs is replaced, and then every link loses its connections.
        """

        async def renew(link: _Link) -> None:
            if not link.sound:
                link.refused = False
                link.toxics.clear()
                await self._make(link)

        await self._change(self.pairs if pairs is None else pairs, renew, probe=True)

    async def close(self) -> None:
        """End the server and all connections. Idempotent."""
        async with self._changing:
            await self._server.stop()

    def _link(self, pair: Pair) -> _Link:
        try:
            return self._links[pair]
        except KeyError:
            raise InvalidArgument(
                f"the pair {pair} does not exist; the pairs are {self.pairs}"
            ) from None

    @property
    def _every(self) -> list[_Link]:
        return [*self._links.values(), *self._side_doors.values()]

    async def _change(
        self,
        pairs: Collection[Pair],
        work: Callable[[_Link], Awaitable[None]],
        *,
        probe: bool = False,
    ) -> None:
        """Change the links.

        `probe` asks the server whether it lives even if there is nothing to do.
        """
        links = [self._link(pair) for pair in pairs]
        links += [self._side_doors[pair] for pair in pairs if pair in self._side_doors]
        async with self._changing:
            try:
                await _all(work(link) for link in links)
                if probe:
                    await self._server.api.version()
            except Unavailable:
                await self._server.restart()
                await _all(map(self._make, self._every))

    async def _make(self, link: _Link) -> None:
        """Create the link's proxy in its wanted state, in place of an existing one.

        No connection passes before all its toxics are there.
        """
        api = self._server.api
        try:
            await api.delete(link.name)
        except ToxiproxyError as error:
            if error.status != 404:
                raise
        await api.create(link.name, link.upstream, listen=link.listen, enabled=link.sound)
        for (_, stream), toxic in link.toxics.items():
            await self._add(link, stream, toxic)
        if link.toxics and not link.refused:
            await api.update(link.name, enabled=True)

    async def _add(self, link: _Link, stream: Stream, toxic: _Toxic) -> None:
        await self._server.api.add_toxic(
            link.name, toxic.kind, stream=stream, toxicity=toxic.toxicity,
            attributes=toxic.attributes,
        )  # fmt: skip


async def _all(work: Iterable[Awaitable[None]]) -> None:
    """Run all concurrently, wait for all, then raise one of their errors, a refusal first."""
    ended = await asyncio.gather(*work, return_exceptions=True)
    errors = [error for error in ended if error is not None]
    errors.sort(key=lambda error: isinstance(error, Unavailable))
    if errors:
        raise errors[0]
