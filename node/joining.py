"""Becoming a node: founding a cluster of one, or asking a cluster to be taken in."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from ..client.address import split_address
from ..client.connection import dial
from ..client.errors import (
    InvalidArgument,
    LognodeError,
    RemoteProtocolError,
    Unauthorized,
    Unavailable,
)
from ..client.invitation import NO_CA, Invitation, read_invitation
from ..client.protocol.peers import JOIN
from ..partitions import received
from ..partitions.metadata import Metadata
from . import image_pages, images, rows
from .config import Config
from .data_directory import Identity, new_cluster_id, new_incarnation
from .image_pages import START, Image
from .image_rows import ImageRows, packed_of
from .slices import stepped
from .tls import NodeTls

_RETRY_S = 0.3

log = logging.getLogger("lognode.joining")


def found() -> Identity:
    """The identity of the first node of a new cluster."""
    return Identity(new_cluster_id(), 1, new_incarnation(), 0)


async def join(
    config: Config,
    secret: bytes | None,
    tls: NodeTls | None,
    process: int,
    resolve: Callable[[str], str],
) -> tuple[Identity, dict[str, Any]]:
    """Ask the nodes of `config.join` in turn until one has registered this node. `resolve`: where
    to dial a node that is at that address.

    Returns the identity, and the rows of the metadata image to begin with. Raises the last error
    after `join_timeout` seconds, or at once what waiting cannot mend.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + config.join_timeout
    invitation = _invitation(config, tls)
    incarnation = new_incarnation()
    last: LognodeError = Unavailable("nobody was asked")
    while True:
        for address in config.join:
            try:
                body = registration(config, incarnation, 0, process)
                return await _ask(address, body, secret, tls, resolve, invitation)
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
    address: str,
    body: dict[str, Any],
    secret: bytes | None,
    tls: NodeTls | None,
    resolve: Callable[[str], str],
    invitation: Invitation | None,
) -> tuple[Identity, dict[str, Any]]:
    host, port = split_address(address)
    incarnation: int = body["incarnation"]
    connection = await dial(
        host, port, role="node", incarnation=incarnation, secret=secret,
        tls=None if tls is None else tls.dialling(None),
    )  # fmt: skip
    try:
        if invitation is not None:
            theirs = connection.welcome.cluster
            if theirs != invitation.cluster:
                raise Unauthorized(
                    f"{address} is a node of cluster {theirs}, and the invitation is of cluster "
                    f"{invitation.cluster}; give --join a node of that cluster"
                )
            body = {**body, "invitation": invitation.token}
        deadline = asyncio.get_running_loop().time() + 10.0
        answer = await connection.request(JOIN, body, deadline=deadline)
    finally:
        connection.close()
    cluster, node = answer["cluster"], answer["node"]
    identity = Identity(cluster, node, incarnation, 0)
    try:
        image = await _image(identity, resolve(answer["peer"]), secret, tls)
    except Unauthorized as error:  # of a node whose record is from before it had a port for peers
        told = error.fields.get("peer")
        if type(told) is not str:
            raise
        image = await _image(identity, resolve(told), secret, tls)
    if image is None or not image.full:
        raise Unavailable(f"{address} knows no metadata of cluster {cluster} yet")
    await _check_taken_in(identity, image)
    stored = ImageRows(rows.IMAGE_BUCKETS)
    head, puts = stored.all(image.version, packed_of(image.parts))
    return identity, {**puts, rows.IMAGE: head}


def _invitation(config: Config, tls: NodeTls | None) -> Invitation | None:
    """The invitation of `--invitation`. Raises InvalidArgument, also for one of an authority that
    this node does not trust: whoever asks for the secret then is not of that cluster."""
    if config.invitation is None:
        return None
    found = read_invitation(config.invitation)
    if found.ca != NO_CA and (tls is None or not tls.trusts(found.ca)):
        has = "this node has no TLS" if tls is None else f"{config.tls_ca} does not have that one"
        raise InvalidArgument(
            f"invitation {found.id} is of a cluster whose CA has the key {found.ca}, and {has}; "
            "give --tls-ca the CA of that cluster", what="invitation",
        )  # fmt: skip
    return found


async def _image(
    identity: Identity, address: str, secret: bytes | None, tls: NodeTls | None
) -> Image | None:
    """What the node at that address knows of the metadata."""
    host, port = split_address(address)
    connection = await dial(
        host, port, role="node", cluster=identity.cluster_id, node=identity.node_id,
        incarnation=identity.incarnation, secret=secret,
        tls=None if tls is None else tls.dialling(None),
    )  # fmt: skip
    try:
        return await images.ask(connection, images.KNOWN, START)
    finally:
        connection.close()


async def _check_taken_in(identity: Identity, image: Image) -> None:
    """Raise RemoteProtocolError or CorruptData for an image that does not have this node."""
    metadata = await image_pages.made(image)
    await stepped(received.steps(metadata, Metadata()))
    record = metadata.nodes.get(identity.node_id)
    if (
        record is None
        or record.incarnation != identity.incarnation
        or metadata.cluster_id != identity.cluster_id
    ):
        raise RemoteProtocolError("the answer to the join does not take this node in")


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
