"""`lognode serve-tier`: open the tier, the cache and the port; serve until a signal comes.

The port follows the safe default of a node (`access.exposure`). A listener on loopback may be open
to everybody. Any other listener needs TLS with client certificates, or `--insecure`: the tier has
no tokens by which the process could know its clients.
"""

import argparse
import asyncio
import contextlib
import logging
import os
import signal
import socket
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from ...client.accepting import acceptor
from ...client.accepting.listener import Listener
from ...client.cli import object_stores
from ...client.cli.parser import Parser, UsageError, age_s, rule_bytes
from ...client.loopback import is_loopback
from ...client.objects import places
from ...client.protocol import limits
from ...client.protocol.address import Address, split_address
from ...client.protocol.errors import InvalidArgument, Unavailable
from ...statemachine.segments import SegmentStore
from ..certificates.tls import NodeTls
from ..config import Config
from ..listeners.doors import client_bounds
from ..metrics import Metrics
from ..runtime import descriptors, logs
from ..runtime.interpreter import run as run_loop
from ..runtime.parts import Parts
from ..tier.chunk_cache import ChunkCache
from ..tier.tier_files import TierFiles
from ..tier.tier_store import TierStore
from .following import Following, Served
from .snapshot_leases import SnapshotLeases
from .tier_service import FilePlaces, TierService
from .tier_status import TierStatus

HELP: Final = "answer reads of a cluster's logs from its tier, without the cluster"
_LISTEN: Final = "127.0.0.1:4700"
_PATIENCE_S: Final = 10.0
"""How long a request to S3 and its repetitions take, as long as a client waits by default."""
_MEMORY_BYTES: Final = 64 * limits.MIB
"""The most bytes of chunks in memory."""
_READERS: Final = 32
"""The most reads that wait for the store at a time."""
_CACHE_BYTES: Final = 1024 * limits.MIB
_PERIOD_S: Final = 10.0
_STALE_S: Final = 300.0

log = logging.getLogger("lognode.serve_tier")


def parser() -> Parser:
    """Return the parser of `lognode serve-tier`."""
    made = Parser(
        prog="lognode serve-tier",
        description="Serve the logs of a tier to clients, read only, until a signal ends the "
        "process. The process joins no cluster; SDK, command line and Spark use its address as "
        "they use the address of a node.",
    )
    made.add_argument("tier", metavar="TIER",
                      help="directory or s3://BUCKET/PREFIX that nodes have as "
                           "--tier")  # fmt: skip
    object_stores.address_arguments(made)
    made.add_argument("--listen", default=_LISTEN, metavar="H:P",
                      help=f"address for clients (default {_LISTEN})")  # fmt: skip
    made.add_argument("--advertise", metavar="H:P",
                      help="address that clients dial (default: the address of "
                           "--listen)")  # fmt: skip
    made.add_argument("--cache", type=Path, default=Path("lognode-tier-cache"), metavar="DIR",
                      help="directory for pieces of files that were read (default "
                           "./lognode-tier-cache)")  # fmt: skip
    made.add_argument("--cache-bytes", type=_bytes, default=_CACHE_BYTES, metavar="SIZE",
                      help="the most bytes in --cache; the piece that was used longest ago goes "
                           "first (default 1GiB)")  # fmt: skip
    made.add_argument("--period", type=_period, default=_PERIOD_S, metavar="AGE",
                      help="time between two looks at the manifests (default 10s)")  # fmt: skip
    made.add_argument("--max-stale", type=_period, default=_STALE_S, metavar="AGE",
                      help="refuse reads when the last look at the manifests is older (default "
                           "5m)")  # fmt: skip
    made.add_argument("--nodes", default="", metavar="H:P,...",
                      help="nodes that the refusal of an append names")  # fmt: skip
    for name, text in (
        ("cert", "certificate of this process, as `lognode ca node` makes it, for TLS"),
        ("key", "private key of the certificate, which only its owner may read"),
        ("ca", "CAs that sign the certificates of clients"),
    ):
        made.add_argument(f"--tls-{name}", type=Path, metavar="FILE", help=text)
    made.add_argument("--tls-client-auth", choices=("none", "optional", "required"),
                      help="whether clients need a certificate (default required)")  # fmt: skip
    made.add_argument("--insecure", action="store_true",
                      help="let other machines read without TLS or without "
                           "certificates")  # fmt: skip
    made.add_argument("--log-level", choices=("DEBUG", "INFO", "WARNING", "ERROR"), default="INFO",
                      help="default INFO")  # fmt: skip
    made.add_argument("--log-format", choices=logs.FORMATS, default="auto",
                      help="form of the log on stderr (default auto)")  # fmt: skip
    return made


def run(arguments: Sequence[str]) -> int:
    """Serve until a signal comes; return the exit code. Raises UsageError, and LognodeError when
    the process cannot start."""
    options = parser().parse(arguments)
    if options.max_stale <= options.period:
        raise UsageError(
            f"--max-stale is {options.max_stale:g} s and --period is {options.period:g} s; give a "
            "longer --max-stale"
        )
    config = _config(options)
    _check_exposure(config)
    is_s3 = options.tier.startswith("s3://")
    objects = places.opened(
        options.tier, endpoint=options.endpoint, region=options.region,
        patience_s=_PATIENCE_S if is_s3 else None,
    )  # fmt: skip
    store = TierStore(objects)
    cluster = store.cluster()
    os.umask(0o077)  # no other user may read the cache
    logs.set_up(options.log_level, options.log_format)
    return run_loop(_Process(options, config, store, cluster).run())


class _Process:
    """The parts of the process."""

    def __init__(
        self, options: argparse.Namespace, config: Config, store: TierStore, cluster: str
    ) -> None:
        self._options = options
        self._config = config
        self._tier = store
        self._cluster = cluster
        self._ends = asyncio.Event()
        self._failure: BaseException | None = None
        self._listener: Listener | None = None
        self._parts = Parts(self._failed)

    async def run(self) -> int:
        """Serve until asked to end; return the exit code. Raises LognodeError."""
        options, objects = self._options, self._tier.objects
        tls = NodeTls.of(self._config, Metrics())
        # Threads that wait for the disk and the store, also at the end of the process.
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(_READERS))
        with contextlib.ExitStack() as ends:
            cache = ChunkCache(
                options.cache, memory_bytes_max=_MEMORY_BYTES, disk_bytes_max=options.cache_bytes
            )
            ends.callback(cache.close)
            where, leases = FilePlaces(), SnapshotLeases()
            files = TierFiles(objects, cache, where.of)
            store = SegmentStore(options.cache, elsewhere=files.open)
            ends.callback(store.close)

            def take_news(served: Served) -> None:
                leases.move_on(served)
                where.tell(served, leases)

            following = Following(
                self._tier, store, self._cluster, period_s=options.period, on_news=take_news
            )
            ends.callback(following.stop)
            ends.callback(self._parts.cancel)
            await following.begin()
            status = TierStatus(
                following, leases, files, place=objects.place, address=self._address,
                max_stale_s=options.max_stale, wall_ms=lambda: time.time_ns() // 1_000_000,
            )  # fmt: skip
            service = TierService(
                following, leases, files, store, status, where, address=self._address,
                max_stale_s=options.max_stale, writers=options.nodes,
            )  # fmt: skip
            await self._serve(service, tls)
            self._parts.begin(following.run())
            if tls is not None:
                self._parts.begin(tls.run())
            self._react(tls)
            log.info(
                "serves the tier",
                extra={"fields": {"tier": objects.place, "listen": self._address(),
                                  "cluster": following.cluster}},
            )  # fmt: skip
            await self._ends.wait()
            if self._listener is not None:
                await self._listener.close()
        return 0 if self._failure is None else 1

    async def _serve(self, service: TierService, tls: NodeTls | None) -> None:
        """Open the port. Raises Unavailable."""
        host, port = split_address(self._options.listen, "listen")
        plan = descriptors.plan(descriptors.raise_limit())
        try:
            self._listener = await acceptor.serve(
                service, host, port, tls=tls, bounds=client_bounds(plan, limits.idle_timeout_s),
                on_closed=_closed,
            )  # fmt: skip
        except OSError as error:
            raise Unavailable(
                f"cannot listen on {self._options.listen}: {error.strerror or error}; give another "
                "address with --listen"
            ) from None

    def _address(self) -> str:
        """Return the address that clients dial."""
        if self._options.advertise:
            return str(self._options.advertise)
        host, port = split_address(self._options.listen, "listen")
        return str(Address(host, port if self._listener is None else self._listener.port or port))

    def _react(self, tls: NodeTls | None) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._ends.set)
        if tls is not None:
            loop.add_signal_handler(signal.SIGHUP, tls.look_again)

    def _failed(self, error: BaseException) -> None:
        log.critical("a part of the process failed", exc_info=error)
        self._failure = error
        self._ends.set()


def _config(options: argparse.Namespace) -> Config:
    """Return the settings of the port as a node has them."""
    given = {} if options.tls_client_auth is None else {"tls_client_auth": "--tls-client-auth"}
    return Config(
        listen=options.listen, advertise=options.advertise or "", tls_cert=options.tls_cert,
        tls_key=options.tls_key, tls_ca=options.tls_ca,
        tls_client_auth=options.tls_client_auth or "required",
        insecure="on" if options.insecure else "off", sources=given,
    )  # fmt: skip


def _check_exposure(config: Config) -> None:
    """Raise InvalidArgument for a port that strangers could use, or whose address no client can
    dial; Unavailable for a host that does not resolve."""
    host, port = split_address(config.listen, "listen")
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise Unavailable(
            f"cannot listen on {config.listen}: {error.strerror or error}; give another address "
            "with --listen"
        ) from None
    addresses = {str(each[4][0]) for each in found}
    if not config.advertise and addresses & {"0.0.0.0", "::"}:
        raise InvalidArgument(
            f"--listen is {config.listen}, which means every interface, and clients need an "
            "address that they can dial. Give such an address with --advertise",
            what="advertise",
        )
    is_open = not all(map(is_loopback, addresses))
    knows_clients = config.tls_cert is not None and config.tls_client_auth == "required"
    if is_open and not knows_clients and config.insecure != "on":
        raise InvalidArgument(
            f"--listen is {config.listen}: other machines can reach this process, and it does not "
            "know its clients. Listen on 127.0.0.1, or give --tls-cert, --tls-key and --tls-ca "
            "with --tls-client-auth required, or accept every client with --insecure",
            what="insecure",
        )


def _closed(reason: str, address: str) -> None:
    log.debug("connection closed", extra={"fields": {"reason": reason, "address": address}})


def _bytes(text: str) -> int:
    found = rule_bytes(text)
    if found is None:
        raise argparse.ArgumentTypeError("none is not a size here; write 512MiB or 10GiB")
    return found


def _period(text: str) -> float:
    found = age_s(text)
    if found < 0.05:
        raise argparse.ArgumentTypeError(f"{text!r} is below 50ms; give 50ms or more")
    return found
