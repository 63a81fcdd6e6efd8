"""Who a connection is, and what it may ask.

While the cluster has no tokens, a client needs none. In a cluster with tokens, a connection asks
for versions and authenticates (`sasl`), within a few seconds and with one attempt; anything else
ends the connection, as a broker of Kafka does. `node.access` then ends the connection when the
rights of the token change or end.
"""

from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

from ...client.protocol import Permission
from ...client.protocol.certificate import Certificate
from ...client.protocol.errors import InvalidArgument, LognodeError, Unauthorized
from ..access.access import Accesses, OpenAccess, Shown
from ..access.rights import Rights
from . import api, codes, sasl
from .api import Head, head_of
from .clients import Client, Clients
from .room import Hold, Room
from .scram import Step
from .topics import Topics
from .wire import Reader

HANDSHAKE: Final = frozenset({api.API_VERSIONS, api.SASL_HANDSHAKE, api.SASL_AUTHENTICATE})
"""The requests of a client that has not authenticated."""
_RAW_VERSION: Final = 0
"""After a handshake of this version, the bytes of the mechanism come without a request's head."""
_MESSAGE_CHARS: Final = 1_000

OnRefused = Callable[[str, str, str, LognodeError], None]
Access = Rights | OpenAccess
Mechanism = Callable[[bytes], Awaitable[Step]]


class Asker(NamedTuple):
    """Who sends a request."""

    host: str
    topics: Topics
    access: Access

    def may_use(self, group: str) -> bool:
        """Return whether the asker may be a member of a group: its id counts as a log's name."""
        return self._may(Permission.READ, group)

    def may_see(self, group: str) -> bool:
        """Return whether the asker may have a description of a group."""
        return self.may_use(group) or self._may(Permission.DESCRIBE, group)

    def may_remove(self, group: str) -> bool:
        """Return whether the asker may remove a group and its committed offsets."""
        return self._may(Permission.ADMIN, group)

    def may_read(self, topic: str) -> bool:
        """Return whether the asker may read a topic."""
        return self._may(Permission.READ, topic)

    def _may(self, permission: Permission, name: str) -> bool:
        return not isinstance(self.access, Rights) or self.access.may(permission, name)


class Answered(NamedTuple):
    """The body of the answer to a request of the handshake; `is_last`: then the session ends."""

    body: bytes
    is_last: bool = False


class Session:
    """A connection from a host. `shown` is what it shows without a token. `on_refused` gets the
    principal, the address, the operation and the error of a refusal."""

    def __init__(
        self, accesses: Accesses, clients: Clients, *, host: str, address: str,
        certificate: Certificate | None, is_private: bool, on_refused: OnRefused,
        opened: Callable[[Access], None],
    ) -> None:  # fmt: skip
        self._accesses = accesses
        self._clients = clients
        self.host = host
        self._address = address
        self._certificate = certificate
        self._is_private = is_private
        self._on_refused = on_refused
        self._opened = opened
        self._access: Access | None = None
        self._client: Client | None = None
        self._holds: set[Hold] = set()
        self._mechanism: Mechanism | None = None
        """What takes the messages of the client, once a mechanism is chosen."""
        self._is_bare = False
        """Whether messages come without the head of a request."""

    @property
    def is_known(self) -> bool:
        """Whether the session may ask: its client has authenticated, or need not."""
        return self._client is not None or not self._accesses.is_on

    @property
    def is_raw(self) -> bool:
        """Whether the next bytes are those of the mechanism alone."""
        return self._client is None and self._mechanism is not None and self._is_bare

    async def who(self) -> tuple[Client, Asker]:
        """Return the client that serves requests, and who asks. Raises Unauthorized, Unavailable,
        Overloaded: then the connection ends."""
        if self._client is None:
            try:
                await self._open(None)
            except LognodeError as error:
                raise self._refused(error) from None
        client, access = self._client, self._access
        assert client is not None
        assert access is not None
        access.check_holds()
        return client, Asker(self.host, client.topics, access)

    async def shake(self, data: bytes, head: Head) -> Answered:
        """Serve a request of the handshake. Raises Malformed; Unavailable and Overloaded while this
        node cannot tell, which end the connection: a client gives up for good after an error."""
        reader = Reader(data)
        head_of(reader)
        if head.api == api.API_VERSIONS:
            return Answered(api.versions(head.version))
        if head.api == api.SASL_HANDSHAKE:
            mechanism = sasl.handshake(reader, head.version)
            error = sasl.refusal(mechanism)
            if self._client is not None:
                error = codes.ILLEGAL_SASL_STATE
            if not error:
                self._mechanism = sasl.begun(mechanism, self._accesses.scram_keys)
                self._is_bare = head.version == _RAW_VERSION
            return Answered(sasl.handshake_answer(error), is_last=bool(error))
        message = sasl.authenticate(reader, head.version)
        if self._client is not None or self._mechanism is None:
            told = "the authentication comes once, after a handshake"
            body = sasl.authenticate_answer(codes.ILLEGAL_SASL_STATE, told, head.version)
            return Answered(body, is_last=True)
        try:
            answer = await self._step(self._mechanism, message)
        except (Unauthorized, InvalidArgument) as error:
            told = self._refused(error).message[:_MESSAGE_CHARS]
            body = sasl.authenticate_answer(codes.SASL_AUTHENTICATION_FAILED, told, head.version)
            return Answered(body, is_last=True)
        return Answered(sasl.authenticate_answer(codes.NONE, None, head.version, answer))

    async def raw(self, data: bytes) -> bytes:
        """Take the bytes of the mechanism without a head. Return the answer. Raises Unauthorized,
        Unavailable, InvalidArgument: then the connection ends, as the protocol has no error
        here."""
        assert self._mechanism is not None
        try:
            return await self._step(self._mechanism, data)
        except LognodeError as error:
            raise self._refused(error) from None

    async def _step(self, mechanism: Mechanism, message: bytes) -> bytes:
        """Take a message of the mechanism, and open the session after the last. Return the
        answer."""
        try:
            step = await mechanism(message)
        except Unauthorized as error:
            raise self._accesses.refused(self._address, error) from None
        if step.shown is not None:
            await self._open(step.shown)
        return step.answer

    async def _open(self, token: str | None) -> None:
        # A certificate alone is not enough: the client of the cluster cannot show the certificate.
        certificate = None if self._accesses.is_on else self._certificate
        shown = Shown(token, certificate, self._address, private=self._is_private)
        access = await self._accesses.of_request(shown)
        self._client = self._clients.hold(token, access.owner)
        self._access = access
        self._opened(access)

    def _refused(self, error: LognodeError) -> LognodeError:
        """Record a refusal."""
        if isinstance(error, Unauthorized):
            self._on_refused(self.host, self._address, "kafka", error)
        return error

    async def hold(self, room: Room, size: int) -> Hold:
        """Wait for bytes of a room, and have them until they are freed or the session ends."""
        await room.take(size, self.host)
        found = Hold(room, size, self.host)
        self._holds.add(found)
        return found

    def let_go(self, held: Hold) -> None:
        """Free bytes."""
        self._holds.discard(held)
        held.free()

    def close(self) -> None:
        """Let go of the client, and of what the session holds."""
        for held in self._holds:
            held.free()
        self._holds.clear()
        if self._client is not None:
            self._clients.release(self._client)
            self._client = None
