"""Turn an empty data directory into a node, of an existing cluster or as the founder of one."""

from collections.abc import Awaitable, Callable
from typing import Any

from ...client.protocol.errors import Conflict
from ...statemachine.meta import MetaStore
from ..certificates.tls import NodeTls
from ..config import Config
from ..directory import meta_keys
from ..directory.data_directory import Identity, identity_row, new_cluster_id, new_incarnation
from . import attempt
from .admission import Admission
from .joining import join

Store = Callable[[dict[str, Any]], Awaitable[None]]


async def taken_in(
    config: Config,
    secret: bytes | None,
    tls: NodeTls | None,
    meta: MetaStore,
    store: Store,
    resolve: Callable[[str], str],
) -> Identity:
    """Join the cluster of `config.join`; return this node's new identity.

    `store` commits rows to `meta`; `resolve` maps an advertised address to the address to dial.
    Raises the errors of `joining.join`, and InvalidArgument for an invitation that cannot be used.
    """
    admission = Admission(config, tls)
    asks = await attempt.begin(meta, store, admission.invitation_id)
    identity, image = await join(config, secret, admission, asks, resolve)
    await store({**identity_row(identity), **image, meta_keys.ATTEMPT: None})
    return identity


async def founded(config: Config, meta: MetaStore, store: Store) -> Identity:
    """Found a new cluster; return this node's new identity.

    Raises Conflict for a directory that has asked to join a cluster: the cluster may have
    registered the directory.
    """
    if meta.get(meta_keys.ATTEMPT) is not None:
        raise Conflict(
            f"{config.data} has asked to join a cluster, but the node would now found a "
            "cluster; start the node with --join as before, or give an empty directory"
        )
    identity = Identity(new_cluster_id(), 1, new_incarnation(), 0)
    auth = {meta_keys.AUTH: True} if config.auth == "on" else {}
    await store({**identity_row(identity), **auth})
    return identity
