"""Who a client is, and what it may do: tokens and certificates against the metadata.

Authorisation is off until the metadata has a token; until then every client may do everything, as
far as this node was not started with `--auth`. From then on a client shows a token in its hello or
a certificate that the metadata knows, or is refused.

Rights change while connections are open. Whenever the metadata's tokens have changed, and twice a
second for those that expire, each connection whose rights are not what they were is ended: its
follows, streams and requests end with it, and its client learns the reason when it dials again.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final

from ..client.acceptor import ServerConnection
from ..client.certificate import Certificate
from ..client.errors import InvalidArgument, LognodeError, Unauthorized
from ..client.key_spans import KeySpans
from ..client.principal import Principal, anonymous
from ..client.protocol import Operation
from ..client.tokens import id_of, is_token
from ..partitions.metadata import Metadata
from ..partitions.tokens import TokenRecord
from .metrics import Metrics
from .rights import Rights

_LOOK_S: Final = 0.5
_REFRESH_S: Final = 1.0
"""So seldom strangers with unknown tokens make this node ask the controller for news."""
_TELL_EVERY_S: Final = 10.0

log = logging.getLogger("lognode.access")


@dataclass(frozen=True, slots=True)
class Shown:
    """What a client shows of itself. `address`: `host:port` that it dials from; `private`: nobody
    else could read the token on its way."""

    token: str | None = field(repr=False)
    certificate: Certificate | None
    address: str
    private: bool

    @property
    def host(self) -> str:
        """The host of the address."""
        return self.address.rpartition(":")[0]


class OpenAccess:
    """The access of a client where authorisation is off: it may do everything."""

    def __init__(self, principal: Principal) -> None:
        self.principal = principal

    def authorise(self, operation: Operation, body: dict[str, Any]) -> KeySpans | None:
        """Every key."""
        return None


class Accesses:
    """The rights of all clients of this node.

    `metadata` gives the newest metadata that this node has, `refresh` brings it up to date;
    `identity` names the holder of a client's certificate; `wants_auth`: this node was started with
    `--auth`.
    """

    def __init__(
        self,
        *,
        metadata: Callable[[], Metadata],
        refresh: Callable[[], Awaitable[None]],
        identity: Callable[[Certificate], str],
        wall_ms: Callable[[], int],
        wants_auth: bool,
        metrics: Metrics,
    ) -> None:
        self._metadata = metadata
        self._refresh = refresh
        self._identity = identity
        self._wall_ms = wall_ms
        self._wants_auth = wants_auth
        self._metrics = metrics
        self._open: set[ServerConnection] = set()
        self._rights: dict[str, Rights] = {}
        """By token id: connections with the same token share them."""
        self._seen: tuple[object, bool] = (None, False)
        """Tokens and state of authorisation that were last looked at."""
        self._refreshing: asyncio.Future[None] | None = None
        self._refreshed_s = float("-inf")
        self._told_s = float("-inf")
        self._untold = 0

    @property
    def is_on(self) -> bool:
        """Whether clients need to say who they are."""
        return self._wants_auth or self._metadata().has_auth

    # A client comes.

    def of_client(self, shown: Shown) -> "Rights | OpenAccess | Awaitable[Rights | OpenAccess]":
        """Return what the client may do, or a coroutine that returns it.

        A token of which this node has not heard yet may be new: the node asks for news first.
        Raises Unauthorized.
        """
        found = self._known(shown)
        if isinstance(found, LognodeError):
            if shown.token is None and shown.certificate is None:
                raise self._refused(shown.address, found)
            return self._of_news(shown)
        return found

    async def of_request(self, shown: Shown) -> "Rights | OpenAccess":
        """As `of_client`, for a client without a connection of its own."""
        found = self.of_client(shown)
        return await found if isinstance(found, Awaitable) else found

    async def _of_news(self, shown: Shown) -> "Rights | OpenAccess":
        await self._newest()
        found = self._known(shown)
        if isinstance(found, LognodeError):
            raise self._refused(shown.address, found)
        return found

    def _known(self, shown: Shown) -> "Rights | OpenAccess | Unauthorized":
        """What the client may do as far as this node knows, or why nothing."""
        if shown.token is not None:
            return self._of_token(shown.token, private=shown.private)
        holder = "" if shown.certificate is None else self._identity(shown.certificate)
        if not self.is_on:
            return OpenAccess(Principal(holder) if holder else anonymous(shown.host))
        for record in self._metadata().tokens.values() if holder else ():
            if record.certificate == holder:
                return self._of_record(record)
        if holder:
            return Unauthorized(
                f"certificate {holder!r} has no rights here; an administrator gives them with "
                f"`lognode token create --certificate {holder!r}`, or use a token"
            )
        return Unauthorized(
            "this cluster serves nobody who does not say who he is; give a token (--token-file, "
            "LOGNODE_TOKEN, `token` of lognode.Client) or a client certificate"
        )

    def _of_token(self, token: str, *, private: bool) -> "Rights | Unauthorized":
        if not private:
            return Unauthorized(
                "a token came unencrypted from another machine, where others may have read it; "
                "revoke that token, and use TLS"
            )
        try:
            record = self._metadata().tokens.get(id_of(token))
        except InvalidArgument as error:
            return Unauthorized(error.message)
        if record is None or not is_token(token, record.digest):
            return Unauthorized("this token is unknown or revoked; ask for another one")
        return self._of_record(record)

    def _of_record(self, record: TokenRecord) -> "Rights | Unauthorized":
        if record.is_expired(self._wall_ms()):
            return Unauthorized(f"token {record.token_id} has expired; ask for another one")
        rights = self._rights.get(record.token_id)
        if rights is None or rights.record != record:
            rights = self._rights[record.token_id] = Rights(record, self._metadata)
        return rights

    async def _newest(self) -> None:
        """Bring the metadata up to date, once for all who wait, and at most once a second."""
        loop = asyncio.get_running_loop()
        if self._refreshing is None:
            if loop.time() - self._refreshed_s < _REFRESH_S:
                return
            self._refreshed_s = loop.time()
            self._refreshing = asyncio.ensure_future(self._refresh())
            self._refreshing.add_done_callback(self._refreshing_ended)
        await asyncio.shield(self._refreshing)

    def _refreshing_ended(self, done: "asyncio.Future[None]") -> None:
        self._refreshing = None
        if not done.cancelled():
            done.exception()  # who waits gets it

    def _refused(self, address: str, error: Unauthorized) -> Unauthorized:
        """Count the refusal of a client, and tell of it: one line in ten seconds."""
        self._metrics.clients_refused.inc()
        now = time.monotonic()
        if now - self._told_s < _TELL_EVERY_S:
            self._untold += 1
            return error
        fields = {"address": address, "error": error.message, "others_since": self._untold}
        self._told_s, self._untold = now, 0
        log.warning("client refused", extra={"fields": fields})
        return error

    # Clients that are here.

    def opened(self, connection: ServerConnection) -> None:
        """The client's handshake is done."""
        self._open.add(connection)

    def closed(self, connection: ServerConnection) -> None:
        """The connection has ended."""
        self._open.discard(connection)

    def image_changed(self) -> None:
        """There is newer metadata: end connections whose rights are gone or are others now."""
        metadata = self._metadata()
        seen = (metadata.tokens, self.is_on)
        if seen[0] is self._seen[0] and seen[1] == self._seen[1]:
            return
        self._seen = seen
        tokens = metadata.tokens
        self._rights = {
            key: rights for key, rights in self._rights.items() if tokens.get(key) == rights.record
        }
        self.look()

    async def run(self) -> None:
        """End connections whose tokens expire, until cancelled."""
        while True:
            await asyncio.sleep(_LOOK_S)
            self.look()

    def look(self) -> None:
        """End every connection whose rights are not what they were."""
        tokens, now_ms, is_on = self._metadata().tokens, self._wall_ms(), self.is_on
        for connection in list(self._open):
            why = _gone(connection.access, tokens, now_ms, is_on=is_on)
            if why is not None:
                self._open.discard(connection)
                connection.refuse(Unauthorized(why))


def _gone(
    access: object, tokens: dict[str, TokenRecord], now_ms: int, *, is_on: bool
) -> str | None:
    """Say why the access does not hold any more; None: it holds."""
    if not isinstance(access, Rights):
        return "this cluster wants to know its clients from now on; give a token" if is_on else None
    record = access.record
    if tokens.get(record.token_id) != record:
        return f"token {record.token_id} was revoked"
    return f"token {record.token_id} has expired" if record.is_expired(now_ms) else None
