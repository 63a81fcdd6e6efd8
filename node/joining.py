"""Becoming a node: founding a cluster of one, or asking a cluster to be taken in."""

import asyncio
import logging
from typing import Any

from ..client.address import split_address
from ..client.connection import dial
from ..client.errors import LognodeError, RemoteProtocolError, Unavailable
from ..client.protocol.peers import JOIN
from ..partitions.metadata import Metadata
from ..partitions.received import received
from .config import Config
from .data_directory import Identity, new_cluster_id, new_incarnation
from .tls import NodeTls

_RETRY_S = 0.3

log = logging.getLogger("lognode.joining")


def found() -> Identity:
    """The identity of the first node of a new cluster."""
    return Identity(new_cluster_id(), 1, new_incarnation(), 0)


async def join(
    config: Config, secret: bytes | None, tls: NodeTls | None, process: int
) -> tuple[Identity, dict[str, Any]]:
    """Ask the nodes of `config.join` in turn until one has registered this node.

    Returns the identity and the metadata image to begin with. Raises the last error after
    `join_timeout` seconds, or at once what waiting cannot mend.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + config.join_timeout
    incarnation = new_incarnation()
    last: LognodeError = Unavailable("nobody was asked")
    while True:
        for address in config.join:
            try:
                body = registration(config, incarnation, 0, process)
                return await _ask(address, body, secret, tls)
            except LognodeError as error:
                if not error.retryable and error.code not in ("REMOTE_PROTOCOL_ERROR",):
                    raise
                last = error
                log.info("joining", extra={"fields": {"address": address, "error": str(error)}})
        if loop.time() >= deadline:
            raise Unavailable(
                f"could not join {','.join(config.join)} within {config.join_timeout:g} s: "
                f"{last.message}; check the addresses, and that a node runs there"
            )
        await asyncio.sleep(_RETRY_S)


async def _ask(
    address: str, body: dict[str, Any], secret: bytes | None, tls: NodeTls | None
) -> tuple[Identity, dict[str, Any]]:
    host, port = split_address(address)
    incarnation: int = body["incarnation"]
    connection = await dial(
        host, port, role="node", incarnation=incarnation, secret=secret,
        tls=None if tls is None else tls.dialling(None),
    )  # fmt: skip
    try:
        deadline = asyncio.get_running_loop().time() + 10.0
        answer = await connection.request(JOIN, body, deadline=deadline)
    finally:
        connection.close()
    return _taken_in(answer, incarnation), answer["image"]


def _taken_in(answer: dict[str, Any], incarnation: int) -> Identity:
    """Who this node is from now on. Raises RemoteProtocolError for an answer that does not say."""
    metadata = received(answer["image"], Metadata())
    record = metadata.nodes.get(answer["node"])
    if (
        record is None
        or record.incarnation != incarnation
        or answer["cluster"] != metadata.cluster_id
    ):
        raise RemoteProtocolError("the answer to the join does not take this node in")
    return Identity(metadata.cluster_id, record.node_id, incarnation, 0)


def registration(
    config: Config,
    incarnation: int,
    boot: int,
    process: int,
    node: int | None = None,
    key: str = "",
) -> dict[str, Any]:
    """What a node says of itself. `process` is random per start; `key` is that of its TLS
    certificate, "" without TLS. At a join the node that is asked looks for itself."""
    return {
        "node": node,
        "incarnation": incarnation,
        "boot": boot,
        "process": process,
        "address": config.advertised,
        "peer": config.peer_advertised,
        "http": config.advertised_http,
        "zone": config.zone,
        "key": key,
    }
