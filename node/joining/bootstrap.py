"""Several empty nodes that are started together agree on the one that founds their cluster.

Each is given the same addresses, its own among them, and how many they are. It listens, and asks
all the others in rounds; `decide` says what follows from a round:

1.  Whoever is of a cluster says so at the handshake, and is joined.
2.  The least address founds, once all the others have answered in one round that they are empty.
    A founder that lost its disk, or comes up where its volume is not mounted, hears of the cluster
    that it founded before, and joins that.
3.  A node that is about to join stores which cluster first, and tells it. It may have been taken in
    by a founder that is lost since: until that is cleared up nobody founds another (x24).
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
    """What another node said of itself: the cluster it is of, or the addresses it was given and
    the cluster that it is about to join."""

    cluster: str | None = None
    members: frozenset[str] = frozenset()
    joins: str | None = None


@dataclass(frozen=True, slots=True)
class Found:
    """This node is the founder."""


@dataclass(frozen=True, slots=True)
class Join:
    """A cluster is there, known at these addresses."""

    cluster: str
    addresses: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing follows yet, and why."""

    reason: str


def members_of(config: Config) -> frozenset[str]:
    """The addresses of all who take part. Raises InvalidArgument when they are not so many as are
    expected."""
    members = frozenset((*config.join, config.advertised))
    if len(members) != config.bootstrap_expect:
        raise InvalidArgument(
            f"--bootstrap-expect {config.bootstrap_expect} and {len(members)} addresses: "
            f"{', '.join(sorted(members))}; give every node the same --join with all of them, "
            "written as they are advertised", what="bootstrap_expect",
        )  # fmt: skip
    return members


def decide(
    me: str, members: frozenset[str], joins: str | None, heard: Mapping[str, Heard]
) -> Found | Join | Wait:
    """What a round says: `heard` has those of the others that answered, `joins` the cluster that
    this node was about to join. Raises Conflict when they are of several clusters."""
    clusters: dict[str, list[str]] = {}
    for address, other in sorted(heard.items()):
        if other.cluster is not None:
            clusters.setdefault(other.cluster, []).append(address)
    if len(clusters) > 1:
        told = "; ".join(f"{', '.join(known)}: {cluster}" for cluster, known in clusters.items())
        raise Conflict(f"the nodes of --join are of several clusters ({told}); name those of one")
    for cluster, known in clusters.items():
        return Join(cluster, tuple(known))
    silent = members - heard.keys() - {me}
    if silent:
        return Wait(f"no answer from {', '.join(sorted(silent))}")
    for address, other in sorted(heard.items()):
        if other.members != members:
            return Wait(f"{address} was given other addresses: {', '.join(sorted(other.members))}")
    for address, promised in [(me, joins), *((a, o.joins) for a, o in sorted(heard.items()))]:
        if promised is not None:
            return Wait(
                f"{address} was about to join cluster {promised}, and nobody is of it: start a "
                f"node that is or, if it is lost, give {address} an empty directory"
            )
    founder = min(members)
    return Found() if founder == me else Wait(f"{founder} is to found the cluster")


def foreign_founder(config: Config, theirs: str, ours: str) -> Conflict:
    """Return what ends a node that has founded a cluster though others know it as one of theirs."""
    return Conflict(
        f"a node of cluster {theirs} has asked for {config.advertised}, and this node has just "
        f"founded cluster {ours} in {config.data}: is that the right directory, and its volume "
        "mounted?"
    )


async def agree(
    config: Config,
    secret: bytes | None,
    tls: NodeTls | None,
    joins: str | None,
    store: Callable[[str], Awaitable[None]],
    bounds: Bounds,
) -> Found | Join:
    """Take part until the cluster is found or founded; `store` keeps the cluster that is about to
    be joined. Raises Unavailable after `join_timeout` seconds, Conflict, InvalidArgument."""
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
                log.info("waits for the others", extra={"fields": {"reason": told}})
            if loop.time() >= deadline:
                raise Unavailable(
                    f"no cluster of {config.bootstrap_expect} nodes within "
                    f"{config.join_timeout:g} s: {step.reason}"
                )
            await asyncio.sleep(_ROUND_S)
    finally:
        await listener.close()


async def _round(
    others: frozenset[str], secret: bytes | None, tls: NodeTls | None
) -> dict[str, Heard]:
    """What all of them say now; who does not answer, or not as it should, is left out. Raises
    Unauthorized: waiting mends no secret and no certificate."""

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
        raise RemoteProtocolError(f"{address}: an answer that is none: {error!r}") from None
    finally:
        connection.close()


_NO_CLUSTER: Final = "this node is of no cluster yet: it waits for the others to found one"


class _Lobby:
    """The listener of a node that is of no cluster yet: it says what it is."""

    def __init__(self, members: frozenset[str], joins: str | None) -> None:
        self._answer: Body = {"members": sorted(members), "joins": joins}

    def welcome(self, hello: Hello, nonce: bytes) -> Welcome:
        return Welcome(nonce=nonce, version=hello.agreed_version())

    def believe(self, connection: ServerConnection, hello: Hello) -> None:
        """Whoever asks may know who waits here."""

    def request(self, request: Request) -> Body:
        return self._answer

    def operation(self, connection: ServerConnection, number: int) -> Operation:
        if number != BOOTSTRAP.number:
            raise Unavailable(_NO_CLUSTER)
        if connection.hello is None or connection.hello.role != "node":
            raise Unauthorized(f"{BOOTSTRAP} is for nodes")
        return BOOTSTRAP

    def opened(self, connection: ServerConnection) -> None:
        """Nothing is kept of it."""

    def closed(self, connection: ServerConnection, error: LognodeError) -> None:
        """Nothing was."""

    def message(self, connection: ServerConnection, operation: Operation, body: Body) -> None:
        """Nobody has anything to say to it."""

    def refused(self, connection: ServerConnection, number: int, error: LognodeError) -> None:
        """Nothing is counted."""

    def failed(self, number: int, error: Exception) -> None:
        log.error("request failed", exc_info=error, extra={"fields": {"op": name_of(number)}})
