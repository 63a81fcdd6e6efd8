"""Let several empty nodes that are started together agree on the founder of their cluster.

Each node is given the same addresses, its own among them, and their number. It listens, and asks
all other nodes in rounds; `decide` says what follows from a round:

1.  A node of a cluster names its cluster in the handshake, and the others join that cluster.
2.  The node with the least address founds the cluster, once all other nodes have answered in one
    round that they are empty. A founder that lost its disk, or starts without its volume mounted,
    hears of the cluster that it founded before, and joins that cluster.
3.  A node that is about to join first stores the cluster, and tells the others of it. A founder
    may have registered the node and be lost since: until that is resolved, no node founds another
    cluster (x24).
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from ...client.accepting import acceptor
from ...client.accepting.acceptor import ServerConnection
from ...client.accepting.request import Request
from ...client.accepting.seats import Bounds
from ...client.connection import dial
from ...client.protocol import Operation, name_of
from ...client.protocol.address import split_address
from ...client.protocol.errors import (
    Conflict,
    InvalidArgument,
    LognodeError,
    RemoteProtocolError,
    Unauthorized,
    Unavailable,
)
from ...client.protocol.peers import BOOTSTRAP
from ...client.protocol.wire import Hello, Welcome
from ..certificates.tls import NodeTls
from ..config import Config

_ROUND_S = 0.3
_ANSWER_S = 2.0

log = logging.getLogger("lognode.bootstrap")
Body = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Heard:
    """An answer of another node: its cluster, or the addresses that it was given and the cluster
    that it is about to join."""

    cluster: str | None = None
    members: frozenset[str] = frozenset()
    joins: str | None = None


@dataclass(frozen=True, slots=True)
class Found:
    """This node is the founder."""


@dataclass(frozen=True, slots=True)
class Join:
    """There is a cluster, known at these addresses."""

    cluster: str
    addresses: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Wait:
    """This node must wait, for this reason."""

    reason: str


def members_of(config: Config) -> frozenset[str]:
    """Return the addresses of all participants. Raises InvalidArgument if there are more or fewer
    than expected."""
    members = frozenset((*config.join, config.advertised))
    if len(members) != config.bootstrap_expect:
        raise InvalidArgument(
            f"--bootstrap-expect is {config.bootstrap_expect}, but --join and this node's own "
            f"address make {len(members)} addresses: {', '.join(sorted(members))}. Give every "
            "node the same --join, with the address that each node advertises",
            what="bootstrap_expect",
        )  # fmt: skip
    return members


def decide(
    me: str, members: frozenset[str], joins: str | None, heard: Mapping[str, Heard]
) -> Found | Join | Wait:
    """Return what follows from a round. Raises Conflict if the nodes are of several clusters.

    `heard` has the nodes that answered; `joins` is the cluster that this node was about to join."""
    clusters: dict[str, list[str]] = {}
    for address, other in sorted(heard.items()):
        if other.cluster is not None:
            clusters.setdefault(other.cluster, []).append(address)
    if len(clusters) > 1:
        told = "; ".join(f"{', '.join(known)}: {cluster}" for cluster, known in clusters.items())
        raise Conflict(
            f"the nodes of --join are of several clusters ({told}); give the nodes of a single "
            "cluster"
        )
    for cluster, known in clusters.items():
        return Join(cluster, tuple(known))
    silent = members - heard.keys() - {me}
    if silent:
        return Wait(f"no answer from {', '.join(sorted(silent))}")
    for address, other in sorted(heard.items()):
        if other.members != members:
            return Wait(f"{address} has another --join: {', '.join(sorted(other.members))}")
    for address, promised in [(me, joins), *((a, o.joins) for a, o in sorted(heard.items()))]:
        if promised is not None:
            return Wait(
                f"{address} was about to join cluster {promised}, but no reachable node is "
                "of that cluster: start a node of that cluster or, if the cluster is lost, "
                f"give {address} an empty directory"
            )
    founder = min(members)
    return Found() if founder == me else Wait(f"{founder} founds the cluster")


def foreign_founder(config: Config, theirs: str, ours: str) -> Conflict:
    """Return the error that ends a founder which other nodes know as a node of their cluster."""
    return Conflict(
        f"a node of cluster {theirs} has called {config.advertised}, but this node has just "
        f"founded cluster {ours} in {config.data}: check the directory and its volume"
    )


async def agree(
    config: Config,
    secret: bytes | None,
    tls: NodeTls | None,
    joins: str | None,
    store: Callable[[str], Awaitable[None]],
    bounds: Bounds,
) -> Found | Join:
    """Take part in rounds until there is a cluster to join, or this node founds it.

    `store` keeps the cluster that this node is about to join. Raises Unavailable after
    `join_timeout` seconds, Conflict, InvalidArgument."""
    members = members_of(config)
    host, port = split_address(config.listen, "listen")
    lobby = _Lobby(members, joins)
    try:
        listener = await acceptor.serve(
            lobby, host, port, secret=secret, tls=tls, bounds=bounds
        )  # fmt: skip
    except OSError as error:
        raise Unavailable(
            f"cannot listen on {config.listen}: {error.strerror or error}; "
            "give another address with --listen"
        ) from None
    loop = asyncio.get_running_loop()
    deadline = loop.time() + config.join_timeout
    told = ""
    try:
        while True:
            heard = await _round(members - {config.advertised}, secret, tls)
            step = decide(config.advertised, members, joins, heard)
            if isinstance(step, Join):
                await store(step.cluster)
            if not isinstance(step, Wait):
                return step
            if step.reason != told:
                told = step.reason
                log.info(
                    "the node waits for the other nodes of --join",
                    extra={"fields": {"reason": told}},
                )
            if loop.time() >= deadline:
                raise Unavailable(
                    f"{config.bootstrap_expect} nodes did not found a cluster within "
                    f"{config.join_timeout:g} s: {step.reason}"
                )
            await asyncio.sleep(_ROUND_S)
    finally:
        await listener.close()


async def _round(
    others: frozenset[str], secret: bytes | None, tls: NodeTls | None
) -> dict[str, Heard]:
    """Return what the other nodes say now, without those that give no valid answer.

    Raises Unauthorized: waiting repairs neither a secret nor a certificate."""

    async def one(address: str) -> Heard | None:
        try:
            return await _ask(address, secret, tls)
        except Unauthorized:
            raise
        except LognodeError as error:
            log.debug("no answer", extra={"fields": {"address": address, "error": str(error)}})
            return None

    asked = sorted(others)
    answers = await asyncio.gather(*map(one, asked))
    return {address: told for address, told in zip(asked, answers, strict=True) if told}


async def _ask(address: str, secret: bytes | None, tls: NodeTls | None) -> Heard:
    host, port = split_address(address)
    connection = await dial(
        host, port, role="node", secret=secret, timeout_s=_ANSWER_S,
        tls=None if tls is None else tls.dialling(None),
    )  # fmt: skip
    try:
        if connection.welcome.cluster is not None:
            return Heard(cluster=connection.welcome.cluster)
        deadline = asyncio.get_running_loop().time() + _ANSWER_S
        answer = await connection.request(BOOTSTRAP, {}, deadline=deadline)
        return Heard(members=frozenset(answer["members"]), joins=answer["joins"])
    except (KeyError, TypeError) as error:
        raise RemoteProtocolError(
            f"{address} sent an answer that is not valid: {error!r}"
        ) from None
    finally:
        connection.close()


_NO_CLUSTER: Final = (
    "this node is of no cluster yet and waits for the other nodes to found a cluster; try again "
    "later"
)


class _Lobby:
    """The listener of a node without a cluster: it answers BOOTSTRAP."""

    def __init__(self, members: frozenset[str], joins: str | None) -> None:
        self._answer: Body = {"members": sorted(members), "joins": joins}

    def welcome(self, hello: Hello, nonce: bytes) -> Welcome:
        return Welcome(nonce=nonce, version=hello.agreed_version())

    def believe(self, connection: ServerConnection, hello: Hello) -> None:
        """Accept every dialler: anybody may know which nodes wait here."""

    def request(self, request: Request) -> Body:
        return self._answer

    def operation(self, connection: ServerConnection, number: int) -> Operation:
        if number != BOOTSTRAP.number:
            raise Unavailable(_NO_CLUSTER)
        if connection.hello is None or connection.hello.role != "node":
            raise Unauthorized(f"{BOOTSTRAP} is for nodes")
        return BOOTSTRAP

    def opened(self, connection: ServerConnection) -> None:
        """Keep nothing: the lobby has no state of a connection."""

    def closed(self, connection: ServerConnection, error: LognodeError) -> None:
        """Do nothing: the lobby has no state of a connection."""

    def message(self, connection: ServerConnection, operation: Operation, body: Body) -> None:
        """Ignore the message: the lobby takes none."""

    def refused(self, connection: ServerConnection, number: int, error: LognodeError) -> None:
        """Do nothing: the lobby counts no refusals."""

    def failed(self, number: int, error: Exception) -> None:
        log.error("request failed", exc_info=error, extra={"fields": {"op": name_of(number)}})
