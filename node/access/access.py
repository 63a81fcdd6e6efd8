"""Who a client is, and what it may do: tokens and certificates against the metadata.

Authorisation is off until the metadata has a token; until then every client may do everything. From
then on a client shows a token in its hello or a certificate that the metadata knows, or is refused.
A node remembers durably that authorisation is on. After its start it serves nobody before it has
the metadata in which this start is registered: a token that it remembers may be revoked since.

Rights change while connections are open. Whenever the metadata's tokens have changed, and twice a
second for those that expire, each connection whose rights are not what they were is ended: its
follows, streams and requests end with it, and its client learns the reason when it dials again.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from ...client.accepting.acceptor import ServerConnection
from ...client.accepting.access import Allowed
from ...client.protocol import Operation
from ...client.protocol.certificate import Certificate
from ...client.protocol.errors import InvalidArgument, Unauthorized, Unavailable
from ...client.protocol.principal import Principal, anonymous
from ...client.tokens import id_of, is_token
from ...partitions.metadata import Metadata
from ...partitions.tokens import TokenRecord
from ..metrics import Metrics
from .rights import Ending, Rights

_LOOK_S: Final = 0.5
_REFRESH_S: Final = 1.0
"""So seldom strangers with unknown tokens make this node ask the controller for news."""
_TELL_EVERY_S: Final = 10.0
_ANSWER_S: Final = 0.5
"""For so long a connection whose rights have ended stays if it waits for answers: one of them may
be that of the command which ended the rights."""
_TURNED_ON: Final = "this cluster wants to know its clients from now on; give a token"

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


class OpenAccess(Ending):
    """The access of a client while authorisation is off: it may do everything."""

    owner = ""
    """Producers are nobody's."""

    def __init__(self, principal: Principal) -> None:
        self.principal = principal

    def authorise(self, operation: Operation, body: dict[str, Any]) -> Allowed | None:
        """Anything. Raises Unauthorized once authorisation is on."""
        self.check_holds()
        return None


class _Refusal:
    """Why a client may do nothing, as far as this node knows. `is_final`: no news of the
    controller can change that."""

    def __init__(self, told: str, *, is_final: bool = False) -> None:
        self.error = Unauthorized(told)
        self.is_final = is_final


class Accesses:
    """The rights of all clients of this node.

    `metadata` gives the newest metadata that this node has, `refresh` brings it up to date;
    `identity` names the holder of a client's certificate; `wants_auth`: authorisation is on though
    the metadata does not say so yet; `is_fresh`: whether the metadata is of this start of the node.
    Rights hold for `lease_s` seconds without news of the controller, 0: for ever; `unsure_s` says
    for how long there have been none.
    """

    def __init__(
        self,
        *,
        metadata: Callable[[], Metadata],
        refresh: Callable[[], Awaitable[None]],
        identity: Callable[[Certificate], str],
        wall_ms: Callable[[], int],
        wants_auth: bool,
        is_fresh: Callable[[], bool],
        metrics: Metrics,
        unsure_s: Callable[[], float] = lambda: 0.0,
        lease_s: float = 0.0,
    ) -> None:
        self._unsure_s = unsure_s
        self._lease_s = lease_s
        self._metadata = metadata
        self._refresh = refresh
        self._identity = identity
        self._wall_ms = wall_ms
        self._wants_auth = wants_auth
        self._is_fresh = is_fresh
        self._metrics = metrics
        self._open: dict[ServerConnection, Rights | OpenAccess] = {}
        self._rights: dict[str, Rights] = {}
        """By token id: connections with the same token share them."""
        self._seen = 0
        self._tokens: Mapping[str, TokenRecord] = {}
        """The tokens that were last looked at, and their version."""
        self._refreshing: asyncio.Future[None] | None = None
        self._refreshed_s = float("-inf")
        self._told_s = float("-inf")
        self._untold = 0

    @property
    def is_on(self) -> bool:
        """Whether clients need to say who they are."""
        return self._wants_auth or self._metadata().has_auth

    @property
    def is_ready(self) -> bool:
        """Whether this node knows who may use it."""
        return not self.is_on or self._is_fresh()

    # A client comes.

    def of_client(self, shown: Shown) -> "Rights | OpenAccess | Awaitable[Rights | OpenAccess]":
        """Return what the client may do, or a coroutine that returns it.

        A token of which this node has not heard yet may be new: the node asks for news first.
        Raises Unauthorized, and Unavailable while the node does not know who may use it.
        """
        if not self.is_ready:
            # What the node remembers of tokens may be long past.
            raise Unavailable(
                "this node has not heard from the controller since its start, and does not know "
                "who may use it; ask another node", reason="starting",
            )  # fmt: skip
        self.check_lease()
        found = self._known(shown)
        if isinstance(found, _Refusal):
            if found.is_final:
                raise self._refused(shown.address, found.error)
            return self._of_news(shown)
        return found

    async def of_request(self, shown: Shown) -> "Rights | OpenAccess":
        """As `of_client`, for a client without a connection of its own."""
        found = self.of_client(shown)
        return await found if isinstance(found, Awaitable) else found

    async def _of_news(self, shown: Shown) -> "Rights | OpenAccess":
        await self._newest()
        found = self._known(shown)
        if isinstance(found, _Refusal):
            raise self._refused(shown.address, found.error)
        return found

    def _known(self, shown: Shown) -> "Rights | OpenAccess | _Refusal":
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
            return _Refusal(
                f"certificate {holder!r} has no rights here; an administrator gives them with "
                f"`lognode token create --certificate {holder!r}`, or use a token"
            )
        return _Refusal(
            "this cluster serves nobody who does not say who he is; give a token (--token-file, "
            "LOGNODE_TOKEN, `token` of lognode.Client) or a client certificate", is_final=True,
        )  # fmt: skip

    def _of_token(self, token: str, *, private: bool) -> "Rights | _Refusal":
        if not private:
            return _Refusal(
                "a token came unencrypted from another machine, where others may have read it; "
                "revoke that token, and use TLS", is_final=True,
            )  # fmt: skip
        try:
            record = self._metadata().tokens.get(id_of(token))
        except InvalidArgument as error:
            return _Refusal(error.message, is_final=True)
        if record is None or not is_token(token, record.digest):
            return _Refusal("this token is unknown or revoked; ask for another one")
        return self._of_record(record)

    def _of_record(self, record: TokenRecord) -> "Rights | _Refusal":
        if record.is_expired(self._wall_ms()):
            return _Refusal(
                f"token {record.token_id} has expired; ask for another one",
                # A certificate may have been given other rights.
                is_final=not record.certificate,
            )
        rights = self._rights.get(record.token_id)
        if rights is None or rights.over or rights.record != record:
            check = self.check_lease if self._lease_s else None
            rights = self._rights[record.token_id] = Rights(record, self._metadata, check)
        return rights

    async def _newest(self) -> None:
        """Bring the metadata up to date, once for all who wait, and at most once a second. Who
        comes within that second waits for its end: a new token is never refused."""
        if self._refreshing is None:
            self._refreshing = asyncio.ensure_future(self._refresh_in_turn())
            self._refreshing.add_done_callback(self._refreshing_ended)
        await asyncio.shield(self._refreshing)

    async def _refresh_in_turn(self) -> None:
        loop = asyncio.get_running_loop()
        pause_s = self._refreshed_s + _REFRESH_S - loop.time()
        if pause_s > 0:
            await asyncio.sleep(pause_s)
        self._refreshed_s = loop.time()
        await self._refresh()

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
        if isinstance(connection.access, Rights | OpenAccess):
            self._open[connection] = connection.access

    def closed(self, connection: ServerConnection) -> None:
        """The connection has ended."""
        self._open.pop(connection, None)

    def image_changed(self) -> None:
        """There is newer metadata: end connections whose rights are gone or are others now."""
        metadata = self._metadata()
        if metadata.tokens is self._tokens:
            return
        changed, self._seen = metadata.tokens_version != self._seen, metadata.tokens_version
        self._tokens = metadata.tokens
        before, self._rights = self._rights, {}
        for token_id, rights in before.items():
            record = metadata.tokens.get(token_id)
            if record is not None and (not changed or record == rights.record):
                rights.record = record  # equal, and from now on the same object
                self._rights[token_id] = rights
        if changed:
            self.look()

    async def run(self) -> None:
        """End connections whose tokens expire, until cancelled."""
        while True:
            await asyncio.sleep(_LOOK_S)
            self.look()

    def check_lease(self) -> None:
        """Raise Unavailable where tokens may have been revoked that this node still believes."""
        if self._lapsed_s() > 0:
            raise Unavailable(
                f"this node has had no news of the controller for {self._unsure_s():.0f} s, and "
                f"believes tokens for {self._lease_s:g} s without (--auth-lease); ask another node",
                reason="lease",
            )  # fmt: skip

    def _lapsed_s(self) -> float:
        """For how long rights have not held because nobody confirms them; 0: they hold."""
        if not self._lease_s or not self.is_on:
            return 0.0
        return max(0.0, self._unsure_s() - self._lease_s)

    def _end_lapsed(self) -> None:
        """End the connections whose rights nobody confirms. Rights come back with news."""
        lapsed_s = self._lapsed_s()
        if not lapsed_s:
            return
        for connection in list(self._open):
            if not connection.awaits_answers or lapsed_s >= _ANSWER_S:
                self._open.pop(connection, None)
                try:
                    self.check_lease()
                except Unavailable as error:
                    connection.refuse(error)

    def look(self) -> None:
        """End the rights that do not hold any more, and the connections that had them."""
        self._end_lapsed()
        tokens, now_ms, is_on = self._metadata().tokens, self._wall_ms(), self.is_on
        now = time.monotonic()
        for connection, access in list(self._open.items()):
            why = access.over or _gone(access, tokens, now_ms, is_on=is_on)
            if why is None:
                continue
            access.end(why, now)
            if not connection.awaits_answers or now - access.over_s >= _ANSWER_S:
                self._open.pop(connection, None)
                connection.refuse(Unauthorized(why))


def _gone(
    access: Ending, tokens: Mapping[str, TokenRecord], now_ms: int, *, is_on: bool
) -> str | None:
    """Say why the access does not hold any more; None: it holds."""
    if not isinstance(access, Rights):
        return _TURNED_ON if is_on else None
    record = access.record
    known = tokens.get(record.token_id)
    if known is not record and known != record:
        return f"token {record.token_id} was revoked"
    return f"token {record.token_id} has expired" if record.is_expired(now_ms) else None
