"""Put together what authorises clients and what limits them, and make the first token.

The founder of a cluster with `--auth` draws a token that allows everything. It writes the token to
`admin.token` in its data directory, where only its owner may read the file. The command that founds
the cluster has the token's digest, so that the cluster never serves strangers. The file is written
before that command; a founder that ended in between reads the file again. `token_recovery` is the
way back when that token is lost.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

from ...client import tokens
from ...client.invitation import NO_CA
from ...client.protocol.errors import (
    OVERTAKEN,
    Conflict,
    InvalidArgument,
    LognodeError,
    Routing,
    Timeout,
    Unavailable,
)
from ...client.protocol.private_files import write_private
from ...partitions import commands
from ...partitions.metadata import Metadata
from ...partitions.tokens import first_token
from ..certificates.tls import NodeTls
from ..config import Config
from ..directory.data_directory import ADMIN_TOKEN
from ..metrics import Metrics
from ..quota.gate import Gate
from ..replicas.controller_replica import ControllerReplica
from . import token_recovery
from .access import Accesses
from .exposure import Exposure
from .http_guard import HttpGuard, hosts_of
from .invite_service import InviteService
from .token_service import TokenService
from .visible import Visible

_RECOVERY_RETRY_S: Final = 0.5

Body = dict[str, Any]
log = logging.getLogger("lognode.access")


class Entrance:
    """The parts of a node that know its clients.

    `metadata`, `command`, `refresh`, `wall_ms`, `is_fresh` and `unsure_s` are those of `Accesses`
    and `TokenService`. `was_on`: the data directory says that authorisation is on; `keep` writes
    that to the directory. `on_end` gets the error that ends this node.
    """

    def __init__(
        self,
        *,
        config: Config,
        secret: bytes | None,
        tls: NodeTls | None,
        exposure: Exposure,
        metadata: Callable[[], Metadata],
        command: Callable[[Body], Awaitable[Body]],
        refresh: Callable[[], Awaitable[None]],
        wall_ms: Callable[[], int],
        was_on: bool,
        unsure_s: Callable[[], float],
        keep: Callable[[], Awaitable[None]],
        is_fresh: Callable[[], bool],
        on_end: Callable[[LognodeError], None],
        metrics: Metrics,
    ) -> None:
        self._exposure = exposure
        self._kept, self._keep = was_on, keep
        self._command, self._is_fresh = command, is_fresh
        self._learnt = asyncio.Event()
        self._on_end = on_end
        self._config = config
        self._metadata = metadata
        self._wall_ms = wall_ms
        self.proves_nodes = secret is not None or tls is not None
        """Whether nodes prove that they are nodes, by the secret or a certificate."""
        self.accesses = Accesses(
            metadata=metadata, refresh=refresh, wall_ms=wall_ms, metrics=metrics,
            identity=lambda certificate: certificate.holder if tls is None
            else tls.holder(certificate),
            wants_auth=was_on or config.auth == "on", is_fresh=is_fresh,
            unsure_s=unsure_s, lease_s=config.auth_lease,
        )  # fmt: skip
        self.guard = HttpGuard(self.accesses, hosts_of(config))
        service = TokenService(
            command=command, refresh=refresh, metadata=metadata, proves_nodes=self.proves_nodes
        )
        invites = InviteService(
            command=command, refresh=refresh, metadata=metadata,
            ca=lambda: NO_CA if tls is None else tls.authority,
        )  # fmt: skip
        self.handlers = {**service.handlers, **invites.handlers}
        self.visible = Visible(metadata)
        """Returns the part of an answer that a principal may see."""
        self.gate = Gate(metadata, time.monotonic, wall_ms())
        self.paid_handlers = {**service.paid_handlers, **self.gate.handlers}
        metrics.watch_use(self.gate.quotas)

    def image_changed(self) -> None:
        """Take newer metadata."""
        self.accesses.image_changed()
        self.gate.image_changed()
        if self._metadata().has_auth and not self._kept:
            self._learnt.set()

    async def run(self) -> None:
        """Keep the access to this node up to date, until cancelled.

        Remember that authorisation is on, end rights that expire, and create the token that the
        data directory requests."""
        expiry = asyncio.ensure_future(self.accesses.run())
        recovery = asyncio.ensure_future(self._recover())
        try:
            if not self._kept:
                await self._learnt.wait()
                await self._keep()
                self._kept = True
                try:
                    self.check()
                except InvalidArgument as error:
                    self._on_end(error)
            await expiry
        finally:
            expiry.cancel()
            recovery.cancel()

    async def _recover(self) -> None:
        """Create the requested token, see `token_recovery`. No failure here ends the node."""
        try:
            request = await asyncio.to_thread(
                token_recovery.take, self._config.data, self._wall_ms()
            )
            if request is not None:
                await self._create_recovered(request)
        except (LognodeError, OSError) as error:
            log.error("the node recovered no token", extra={"fields": {"error": str(error)}})

    async def _create_recovered(self, request: token_recovery.Request) -> None:
        command = {
            "op": commands.CREATE_TOKEN,
            **request.to_command(f"recovery at {self._config.advertised}"),
        }
        while not self._is_fresh():  # noqa: ASYNC110  the answer is about the newest metadata
            await asyncio.sleep(_RECOVERY_RETRY_S)
        if not self._metadata().has_auth:
            raise Conflict(
                "this cluster has no tokens yet; create the first token: `lognode token "
                "create admin --scope all`"
            )
        while request.token_id not in self._metadata().tokens:
            if self._wall_ms() > request.until_ms:
                raise Unavailable("the controller did not answer before the request expired")
            try:
                await self._command({**command, "since": self._metadata().version})
                break
            except (Routing, Unavailable, Timeout):
                await asyncio.sleep(_RECOVERY_RETRY_S)
            except Conflict as error:
                if error.fields.get("reason") != OVERTAKEN:
                    raise
                # Other tokens have changed meanwhile; news of them is on its way to this node.
                await asyncio.sleep(_RECOVERY_RETRY_S)
        log.warning(
            "the data directory of this node created a token that allows everything",
            extra={"fields": {"token": request.token_id, "principal": request.principal}},
        )

    def check(self) -> None:
        """Raise InvalidArgument when authorisation is on and nodes do not prove their identity.

        Also raise InvalidArgument when authorisation is off and strangers could use this node.
        """
        self._exposure.check(is_authorised=self.accesses.is_on)
        if self.accesses.is_on and not self.proves_nodes:
            raise InvalidArgument(
                "clients of this cluster need tokens, but its nodes do not prove their "
                "identity: any client could act as a node. Give every node --secret-file or "
                "TLS", what="auth",
            )  # fmt: skip
        metadata = self._metadata()
        if self._config.auth == "on" and metadata.cluster_id and not metadata.has_auth:
            raise InvalidArgument(
                "--auth applies only when a cluster is founded, and this cluster has no "
                "token; start the node without --auth and create the first token: `lognode "
                "token create admin --scope all`",
                what="auth",
            )

    async def found(
        self,
        replica: ControllerReplica,
        cluster: str,
        run: Callable[[Callable[[], Body]], Awaitable[Body]],
    ) -> None:
        """Propose the first command until the Raft log has it; `run` calls a blocking function."""
        command = {"op": commands.FOUND, "cluster": cluster, "node": 1}
        command = commands.dated(command | await run(self.founding), self._wall_ms())
        while not replica.metadata.cluster_id and not replica.stopped:
            with contextlib.suppress(LognodeError):
                await replica.command(command)
            await asyncio.sleep(0.02)

    def founding(self) -> Body:
        """Return what the founding command says of the other founders and of tokens.

        Raises InvalidArgument and Unavailable when the file of the first token cannot be used.
        """
        founders = {
            "founders": self._config.bootstrap_expect or 1, "level": self._config.found_level,
        }  # fmt: skip
        if self._config.auth != "on":
            return founders
        path = self._config.data / ADMIN_TOKEN
        if path.exists():
            token = tokens.read_token(path)
        else:
            token = tokens.draw()
            write_private(path, f"{token}\n".encode())
            log.warning(
                "the first token of the cluster allows everything; keep its file safe",
                extra={"fields": {"file": str(path), "token": tokens.id_of(token)}},
            )
        made = first_token(tokens.id_of(token), tokens.digest_of(token))
        return {**founders, "token": {**made, "at_ms": self._wall_ms()}}
