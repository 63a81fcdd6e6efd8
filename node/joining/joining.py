"""Ask a cluster to register this node."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from ...client.connection import dial
from ...client.protocol.address import split_address
from ...client.protocol.errors import (
    LognodeError,
    RemoteProtocolError,
    Unauthorized,
    Unavailable,
)
from ...client.protocol.levels import LEVEL_MAX, LEVEL_MIN
from ...client.protocol.peers import JOIN
from ...client.protocol.tls import DialTls
from ...partitions import received
from ...partitions.invites import KEY_IN_USE
from ...partitions.metadata import Metadata
from ..config import Config
from ..control import images
from ..directory import feature_level, meta_keys
from ..directory.data_directory import Identity
from ..directory.image_rows import ImageRows, packed_of
from ..metadata import image_pages
from ..metadata.image_pages import START, Image
from ..runtime.slices import stepped
from .admission import Admission
from .attempt import Attempt
from .waits import Waits

_RETRY_S = 0.3

log = logging.getLogger("lognode.joining")


async def join(
    config: Config,
    secret: bytes | None,
    admission: Admission,
    attempt: Attempt,
    resolve: Callable[[str], str],
) -> tuple[Identity, dict[str, Any]]:
    """Ask the nodes of `config.join` in turn until one has registered this node.

    `resolve` maps an advertised address to the address to dial. The same attempt gets the same
    answer, however often it is made. Returns the identity, and the rows of the first metadata
    image. Raises the last error after `join_timeout` seconds; an error that waiting cannot repair
    is raised at once.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + config.join_timeout
    last: LognodeError = Unavailable("the node has asked no other node yet")
    waits = Waits(log, "the node waits until a node of --join registers it")
    while True:
        reasons = []
        for address in config.join:
            try:
                body = registration(config, attempt.incarnation, 0, attempt.process)
                return await _ask(address, body, secret, admission, resolve)
            except LognodeError as error:
                if not _may_pass(error):
                    raise
                last = error
                reasons.append(f"{address}: {error.message}")
        waits.tell("; ".join(reasons))
        if loop.time() >= deadline:
            raise Unavailable(
                f"the node could not join {','.join(config.join)} within "
                f"{config.join_timeout:g} s: {last.message}; check the addresses, and that "
                "a node runs there"
            )
        await asyncio.sleep(_RETRY_S)


def _may_pass(error: LognodeError) -> bool:
    """Return whether a later answer may differ. For example, the former node of a machine that lost
    its disk becomes DEAD only some time after the machine is back."""
    return (
        error.retryable
        or error.code == RemoteProtocolError.code
        or error.fields.get("reason") == KEY_IN_USE
    )


async def _ask(
    address: str,
    body: dict[str, Any],
    secret: bytes | None,
    admission: Admission,
    resolve: Callable[[str], str],
) -> tuple[Identity, dict[str, Any]]:
    host, port = split_address(address)
    incarnation: int = body["incarnation"]
    try:
        connection = await dial(
            host, port, role="node", incarnation=incarnation, secret=secret, tls=admission.tls
        )
    except Unauthorized as error:
        raise admission.refused(address, error) from None
    try:
        body = {**body, **admission.shown_to(host, connection.welcome.cluster)}
        deadline = asyncio.get_running_loop().time() + 10.0
        answer = await connection.request(JOIN, body, deadline=deadline)
    finally:
        connection.close()
    cluster, node = answer["cluster"], answer["node"]
    identity = Identity(cluster, node, incarnation, 0)
    try:
        image = await _image(identity, resolve(answer["peer"]), secret, admission.tls)
    except Unauthorized as error:  # the node's record is from before nodes had a port for peers
        told = error.fields.get("peer")
        if type(told) is not str:
            raise
        image = await _image(identity, resolve(told), secret, admission.tls)
    if image is None or not image.full:
        raise Unavailable(f"{address} does not know the metadata of cluster {cluster} yet")
    level = (await _taken_in(identity, image)).feature_level
    stored = ImageRows(meta_keys.IMAGE_BUCKETS)
    head, puts = stored.all(image.version, packed_of(image.parts))
    noted = feature_level.rows(lambda _: None, level)  # the directory is empty
    return identity, {**puts, meta_keys.IMAGE: head, **noted}


async def _image(
    identity: Identity, address: str, secret: bytes | None, tls: DialTls | None
) -> Image | None:
    """Return the metadata that the node at that address knows."""
    host, port = split_address(address)
    connection = await dial(
        host, port, role="node", cluster=identity.cluster_id, node=identity.node_id,
        incarnation=identity.incarnation, secret=secret, tls=tls,
    )  # fmt: skip
    try:
        return await images.ask(connection, images.KNOWN, START)
    finally:
        connection.close()


async def _taken_in(identity: Identity, image: Image) -> Metadata:
    """Return the metadata of the image.

    Raises RemoteProtocolError or CorruptData for an image without this node.
    """
    metadata = await image_pages.made(image)
    await stepped(received.steps(metadata, Metadata()))
    record = metadata.nodes.get(identity.node_id)
    if (
        record is None
        or record.incarnation != identity.incarnation
        or metadata.cluster_id != identity.cluster_id
    ):
        raise RemoteProtocolError("the answer to the join does not register this node")
    return metadata


def registration(
    config: Config,
    incarnation: int,
    boot: int,
    process: int,
    node: int | None = None,
    key: str = "",
) -> dict[str, Any]:
    """Return what a node says of itself when it joins or registers.

    `process` is random for each start. `key` is the key of the node's TLS certificate, "" without
    TLS; at a join, the node that is asked takes the key from the certificate itself."""
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
        "levels": [LEVEL_MIN, LEVEL_MAX],
    }
