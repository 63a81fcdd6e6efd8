"""Find out which node a directory is: the node of an earlier start, a founder, or a newcomer."""

import logging
from collections.abc import Callable
from dataclasses import replace

from ...client.accepting.seats import Bounds
from ...statemachine.meta import MetaStore
from ..certificates.tls import NodeTls
from ..config import Config
from ..directory import meta_keys
from ..directory.data_directory import DataDirectory, Identity, load_identity
from .bootstrap import Found, agree
from .newcomer import Store, founded, taken_in

log = logging.getLogger("lognode.node")


async def identified(
    config: Config,
    *,
    directory: DataDirectory,
    meta: MetaStore,
    store: Store,
    secret: bytes | None,
    tls: NodeTls | None,
    resolve: Callable[[str], str],
    bounds: Bounds,
) -> Identity:
    """Return the identity of the directory, which a new directory gets first and keeps.

    `store` commits rows to `meta`; `resolve` maps an advertised address to the address to dial;
    `bounds` are those of the port for clients. Raises the errors of `joining.join` and
    `bootstrap.agree`, and Conflict for a directory that cannot become a node.
    """
    identity = load_identity(meta)
    if identity is None:
        directory.check_fresh()
        if tls is not None:
            tls.check_may_join()
        if config.bootstrap_expect:
            config = await _agreed(config, meta, store, secret, tls, bounds)
    if identity is None and config.join:
        identity = await taken_in(config, secret, tls, meta, store, resolve)
    elif identity is None:
        identity = await founded(config, meta, store)
    elif config.join:
        log.info("this directory has joined before; --join is ignored")
    return identity


async def _agreed(
    config: Config,
    meta: MetaStore,
    store: Store,
    secret: bytes | None,
    tls: NodeTls | None,
    bounds: Bounds,
) -> Config:
    """Return the configuration with the agreed nodes to join; without nodes: found the cluster."""

    async def store_joins(cluster: str) -> None:
        await store({meta_keys.JOINS: cluster})

    step = await agree(config, secret, tls, meta.get(meta_keys.JOINS), store_joins, bounds)
    return replace(config, join=() if isinstance(step, Found) else step.addresses)
