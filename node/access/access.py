"""Find out who a client is and what it may do, by tokens and certificates in the metadata.

Authorisation is off until the metadata has a token; until then every client may do everything. From
then on, a client that shows neither a token in its hello nor a registered certificate is refused.
A node remembers durably that authorisation is on. After a start, the node serves nobody before it
has the metadata that registers this start: a token that it remembers may be revoked by now.

Rights change while connections are open. The node checks all connections when the metadata's tokens
have changed, and twice a second for tokens that expire. It ends each connection whose rights have
changed, with the follows, streams and requests of the connection. The client learns the reason when
it dials again.
"""

import asyncio
import itertools
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from ...client.accepting.access import Allowed
from ...client.protocol import Operation
from ...client.protocol.certificate import Certificate
from ...client.protocol.errors import InvalidArgument, LognodeError, Unauthorized, Unavailable
from ...client.protocol.principal import Principal, anonymous
from ...client.tokens import id_of
from ...partitions.metadata import Metadata
from ...partitions.tokens import TokenRecord
from ..metrics import Metrics
from .rights import Ending, Rights

_LOOK_S: Final = 0.5
_REFRESH_S: Final = 1.0
"""The least time between two refreshes of the metadata for clients with unknown tokens."""
_TELL_EVERY_S: Final = 10.0
_REVOKED_MAX: Final = 4_096
"""The most revoked tokens that a node remembers."""
_ANSWER_S: Final = 0.5
"""How long a connection whose rights have ended stays open to wait for answers: one of them may be
the answer to the command that ended the rights."""
_TURNED_ON: Final = "this cluster now requires clients to identify themselves; give a token"

log = logging.getLogger("lognode.access")


@dataclass(frozen=True, slots=True)
class Shown:
    """The proofs that a client shows. `address` is the `host:port` that it dials from; `private`
    means that nobody else could read the token on its way."""

    token: str | None = field(repr=False)
    certificate: Certificate | None
    address: str
    private: bool

    @property
    def host(self) -> str:
        """The host of the address."""
        return self.address.rpartition(":")[0]


class Connected(Protocol):
    """What the rights of a connection concern."""

    @property
    def access(self) -> object:
        """The rights of the client."""

    @property
    def awaits_answers(self) -> bool:
        """Whether a request is being served whose answer may still be sent."""

    def refuse(self, error: LognodeError) -> None:
        """End the connection, and tell the client why if possible."""


class OpenAccess(Ending):
    """The access of a client while authorisation is off: it may do everything."""

    owner = ""
    """Producers that the client opens have no owner."""

    def __init__(self, principal: Principal) -> None:
        self.principal = principal

    def authorise(self, operation: Operation, body: dict[str, Any]) -> Allowed | None:
        """Allow everything. Raises Unauthorized once authorisation is on."""
        self.check_holds()
        return None


class _Refusal:
    """Why a client may do nothing, as far as this node knows. `is_final`: newer metadata cannot
    change that."""

    def __init__(self, told: str, *, is_final: bool = False) -> None:
        self.error = Unauthorized(told)
        self.is_final = is_final


class Accesses:
    """The rights of all clients of this node.

    `metadata` returns the newest metadata of this node; `refresh` brings it up to date. `identity`
    names the holder of a client's certificate. `wants_auth`: authorisation is on although the
    metadata does not say so yet. `is_fresh` returns whether the metadata is of this start of the
    node. Rights hold for `lease_s` seconds without news from the controller (0: for ever);
    `unsure_s` returns for how many seconds there has been no news.
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
        self._open: dict[Connected, Rights | OpenAccess] = {}
        self._rights: dict[str, Rights] = {}
        """Rights by token id: connections with the same token share them."""
        self._seen = 0
        self._tokens: Mapping[str, TokenRecord] = {}
        """The tokens of the last look, whose version is `_seen`."""
        self._revoked: dict[str, None] = {}
        """The ids of tokens that were revoked before this node's eyes, the oldest first. News
        cannot bring such a token back, so that its holder need not wait for news."""
        self._refreshing: asyncio.Future[None] | None = None
        self._refreshed_s = float("-inf")
        self._told_s = float("-inf")
        self._untold = 0

    @property
    def is_on(self) -> bool:
        """Whether clients must show a token or a registered certificate."""
        return self._wants_auth or self._metadata().has_auth

    @property
    def is_ready(self) -> bool:
        """Whether this node knows who may use the node."""
        return not self.is_on or self._is_fresh()

    # New clients.

    def of_client(self, shown: Shown) -> "Rights | OpenAccess | Awaitable[Rights | OpenAccess]":
        """Return what the client may do, or a coroutine that returns it.

        A token that this node does not know may be new: the node refreshes its metadata first.
        Raises Unauthorized, and Unavailable while the node does not know who may use it.
        """
        self._check_ready()
        found = self._known(shown)
        if isinstance(found, _Refusal):
            if found.is_final:
                raise self.refused(shown.address, found.error)
            return self._of_news(shown)
        return found

    async def of_request(self, shown: Shown) -> "Rights | OpenAccess":
        """Do what `of_client` does, for a client without a connection of its own."""
        found = self.of_client(shown)
        return await found if isinstance(found, Awaitable) else found

    async def scram_keys(self, token_id: str) -> bytes:
        """Return what the metadata keep of a token for SCRAM (`client.scram`). Raises Unauthorized,
        which is not counted yet (`refused`), and Unavailable as `of_client`."""
        self._check_ready()
        keys = self._scram_keys(token_id)
        if not keys and token_id not in self._revoked:
            await self._newest()
            keys = self._scram_keys(token_id)
        if not keys:
            told = "no token with this id has keys for SCRAM; give the id of a token that `lognode "
            told += "token create --scram` made as the user name, or use PLAIN"
            raise Unauthorized(told)
        return keys

    def _scram_keys(self, token_id: str) -> bytes:
        record = self._metadata().tokens.get(token_id)
        return b"" if record is None else record.scram

    def _check_ready(self) -> None:
        """Raise Unavailable while this node does not know who may use it."""
        if not self.is_ready:
            # The tokens that the node remembers may be long out of date.
            raise Unavailable(
                "this node has had no news from the controller since its start, and cannot "
                "check tokens; ask another node", reason="starting",
            )  # fmt: skip
        self.check_lease()

    async def _of_news(self, shown: Shown) -> "Rights | OpenAccess":
        await self._newest()
        found = self._known(shown)
        if isinstance(found, _Refusal):
            raise self.refused(shown.address, found.error)
        return found

    def _known(self, shown: Shown) -> "Rights | OpenAccess | _Refusal":
        """Return what the client may do as far as this node knows, or why it may do nothing."""
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
                f"certificate {holder!r} has no rights here; an administrator grants rights "
                f"with `lognode token create --certificate {holder!r}`. Or use a token"
            )
        return _Refusal(
            "this cluster serves only clients that identify themselves; give a token "
            "(--token-file, LOGNODE_TOKEN, `token` of lognode.Client) or a client "
            "certificate", is_final=True,
        )  # fmt: skip

    def _of_token(self, token: str, *, private: bool) -> "Rights | _Refusal":
        if not private:
            return _Refusal(
                "the token arrived unencrypted from another machine, and others may have "
                "read the token; revoke the token, and use TLS", is_final=True,
            )  # fmt: skip
        try:
            token_id = id_of(token)
        except InvalidArgument as error:
            return _Refusal(error.message, is_final=True)
        record = self._metadata().tokens.get(token_id)
        if record is None or not record.is_shown_by(token):
            return _Refusal(
                "this token is unknown or revoked; ask the administrator for another token",
                is_final=token_id in self._revoked,
            )
        return self._of_record(record)

    def _of_record(self, record: TokenRecord) -> "Rights | _Refusal":
        if record.is_expired(self._wall_ms()):
            return _Refusal(
                f"token {record.token_id} has expired; ask the administrator for another token",
                # The certificate may have other rights by now.
                is_final=not record.certificate,
            )
        rights = self._rights.get(record.token_id)
        if rights is None or rights.over or rights.record != record:
            check = self.check_lease if self._lease_s else None
            rights = self._rights[record.token_id] = Rights(record, self._metadata, check)
        return rights

    async def _newest(self) -> None:
        """Bring the metadata up to date, once for all waiting clients, at most once a second. A
        client that comes within that second waits for its end: a new token is never refused."""
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
            done.exception()  # the waiting clients get it

    def refused(self, address: str, error: Unauthorized) -> Unauthorized:
        """Count the refusal of a client, and log at most one line in ten seconds."""
        self._metrics.clients_refused.inc()
        now = time.monotonic()
        if now - self._told_s < _TELL_EVERY_S:
            self._untold += 1
            return error
        fields = {"address": address, "error": error.message, "others_since": self._untold}
        self._told_s, self._untold = now, 0
        log.warning("client refused", extra={"fields": fields})
        return error

    # Connected clients.

    def opened(self, connection: Connected) -> None:
        """Remember the rights of a client whose handshake is done."""
        if isinstance(connection.access, Rights | OpenAccess):
            self._open[connection] = connection.access

    def closed(self, connection: Connected) -> None:
        """Forget a connection that has ended."""
        self._open.pop(connection, None)

    def image_changed(self) -> None:
        """Take newer metadata: end connections whose rights have ended or changed."""
        metadata = self._metadata()
        if metadata.tokens is self._tokens:
            return
        changed, self._seen = metadata.tokens_version != self._seen, metadata.tokens_version
        if changed:
            self._remember_revoked(self._tokens.keys() - metadata.tokens.keys())
        self._tokens = metadata.tokens
        before, self._rights = self._rights, {}
        for token_id, rights in before.items():
            record = metadata.tokens.get(token_id)
            if record is not None and (not changed or record == rights.record):
                rights.share(record)
                self._rights[token_id] = rights
        if changed:
            self.look()

    def _remember_revoked(self, token_ids: Iterable[str]) -> None:
        self._revoked.update(dict.fromkeys(token_ids))
        surplus = max(0, len(self._revoked) - _REVOKED_MAX)
        for token_id in list(itertools.islice(self._revoked, surplus)):
            del self._revoked[token_id]

    async def run(self) -> None:
        """End connections whose tokens expire, until cancelled."""
        while True:
            await asyncio.sleep(_LOOK_S)
            self.look()

    def check_lease(self) -> None:
        """Raise Unavailable when this node may still accept tokens that have been revoked."""
        if self._lapsed_s() > 0:
            raise Unavailable(
                f"this node has had no news from the controller for {self._unsure_s():.0f} s, "
                f"and believes tokens for {self._lease_s:g} s without news (--auth-lease); ask "
                "another node",
                reason="lease",
            )  # fmt: skip

    def _lapsed_s(self) -> float:
        """Return how long ago the lease of rights ended, in seconds; 0 while rights hold."""
        if not self._lease_s or not self.is_on:
            return 0.0
        return max(0.0, self._unsure_s() - self._lease_s)

    def _end_lapsed(self) -> None:
        """End the connections whose lease of rights is over. Rights return with news."""
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
        """End the rights that no longer hold, and the connections that had them."""
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
    """Return why the access no longer holds, or None while it holds."""
    if not isinstance(access, Rights):
        return _TURNED_ON if is_on else None
    record = access.record
    known = tokens.get(record.token_id)
    if known is not record and known != record:
        return f"token {record.token_id} was revoked"
    return f"token {record.token_id} has expired" if record.is_expired(now_ms) else None
