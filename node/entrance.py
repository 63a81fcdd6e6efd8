"""Who may use this node: puts together what authorises clients, and makes the first token.

The founder of a cluster with `--auth` draws a token that allows everything and writes it to
`admin.token` in its data directory, where only its owner may read it. The command that founds the
cluster has the token's digest: there is no moment in which the cluster serves strangers. The file
is written before that command, and read again by a founder that ended in between.
"""

import logging
from collections.abc import Awaitable, Callable
from typing import Any

from ..client import tokens
from ..client.access import Access
from ..client.errors import InvalidArgument
from ..client.private_files import write_private
from ..client.protocol import Operation
from ..partitions.metadata import Metadata
from ..partitions.tokens import first_token
from . import visible
from .access import Accesses
from .config import Config
from .data_directory import ADMIN_TOKEN
from .http_guard import HttpGuard, hosts_of
from .metrics import Metrics
from .tls import NodeTls
from .token_service import TokenService

Body = dict[str, Any]
log = logging.getLogger("lognode.access")


class Entrance:
    """The parts of a node that know its clients. `metadata`, `command`, `refresh` and `wall_ms` as
    in `Accesses` and `TokenService`."""

    def __init__(
        self,
        *,
        config: Config,
        secret: bytes | None,
        tls: NodeTls | None,
        metadata: Callable[[], Metadata],
        command: Callable[[Body], Awaitable[Body]],
        refresh: Callable[[], Awaitable[None]],
        wall_ms: Callable[[], int],
        metrics: Metrics,
    ) -> None:
        self._config = config
        self._metadata = metadata
        self._wall_ms = wall_ms
        self.proves_nodes = secret is not None or tls is not None
        """Whether a node proves that it is one, by the secret or a certificate."""
        self.accesses = Accesses(
            metadata=metadata, refresh=refresh, wall_ms=wall_ms, metrics=metrics,
            identity=lambda certificate: certificate.holder if tls is None
            else tls.holder(certificate),
            wants_auth=config.auth == "on",
        )  # fmt: skip
        self.guard = HttpGuard(self.accesses, hosts_of(config))
        service = TokenService(
            command=command, refresh=refresh, metadata=metadata, proves_nodes=self.proves_nodes
        )
        self.handlers = service.handlers

    def check(self) -> None:
        """Raise InvalidArgument where authorisation is on and nodes prove nothing."""
        if self.accesses.is_on and not self.proves_nodes:
            raise InvalidArgument(
                "clients need tokens here, and nodes prove nothing: whoever says that it is a "
                "node would be believed; give every node --secret-file, or TLS", what="auth",
            )  # fmt: skip
        metadata = self._metadata()
        if self._config.auth == "on" and metadata.cluster_id and not metadata.has_auth:
            raise InvalidArgument(
                "--auth is for founding a cluster, and this cluster has no token; start the node "
                "without --auth and create the first one: `lognode token create admin --scope all`",
                what="auth",
            )

    def visible(self, operation: Operation, access: Access, answer: Body) -> Body:
        """Return what of the answer the principal may see."""
        return visible.visible(operation, access, answer, self._metadata())

    def founding(self) -> Body:
        """Return what the command that founds the cluster says of tokens.

        Raises InvalidArgument and Unavailable for a file of the first token that cannot be used.
        """
        if self._config.auth != "on":
            return {}
        path = self._config.data / ADMIN_TOKEN
        if path.exists():
            token = tokens.read_token(path)
        else:
            token = tokens.draw()
            write_private(path, f"{token}\n".encode())
            log.warning(
                "the first token of the cluster may do everything; keep its file safe",
                extra={"fields": {"file": str(path), "token": tokens.id_of(token)}},
            )
        made = first_token(tokens.id_of(token), tokens.digest_of(token))
        return {"token": {**made, "at_ms": self._wall_ms()}}
