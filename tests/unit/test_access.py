"""Who a client is: tokens and certificates against the metadata, and the fate of connections
whose rights change."""

import asyncio
import hashlib
import hmac
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from metadata_log import Controller

from lognode.client import scram, tokens
from lognode.client.protocol.certificate import Certificate
from lognode.client.protocol.cluster import ALTER_LOG
from lognode.client.protocol.errors import LognodeError, Unauthorized, Unavailable
from lognode.client.protocol.levels import SCRAM_FROM
from lognode.client.protocol.principal import Principal
from lognode.client.protocol.scopes import parse_scope
from lognode.node.access import access
from lognode.node.access.access import Accesses, OpenAccess, Shown
from lognode.node.access.rights import Rights
from lognode.node.metrics import Metrics
from lognode.partitions.metadata import Metadata

CERTIFICATE = Certificate(b"f", "k", 0, 1, "app", ("lognode://cluster/c/client/app",))


class Connection:
    """What `Accesses` uses of a connection. Hashable by identity, as a connection is."""

    def __init__(self, rights: Any) -> None:
        self.access = rights
        self.awaits_answers = False
        self.errors: list[LognodeError] = []

    def refuse(self, error: LognodeError) -> None:
        self.errors.append(error)


class World:
    """A controller, and a node that hears of it when it is told to."""

    def __init__(
        self, *, auth: bool = True, wants_auth: bool = False, lease_s: float = 0.0
    ) -> None:
        self.unsure_s = 0.0
        self.controller = Controller().nodes(1)
        self.now_ms = 1_000_000
        self.refreshes = 0
        self.fresh = True
        self.metrics = Metrics()
        self.admin = ""
        if auth:
            self.admin = self.create("admin", "all")
        self.known = self.copy()
        self.accesses = Accesses(
            metadata=lambda: self.known, refresh=self.refresh, wall_ms=lambda: self.now_ms,
            identity=lambda certificate: certificate.holder, wants_auth=wants_auth,
            is_fresh=lambda: self.fresh, metrics=self.metrics,
            unsure_s=lambda: self.unsure_s, lease_s=lease_s,
        )  # fmt: skip

    def copy(self) -> Metadata:
        return Metadata.from_image(self.controller.metadata.image())

    def hear(self) -> None:
        self.known = self.copy()
        self.accesses.image_changed()

    async def refresh(self) -> None:
        self.refreshes += 1
        await asyncio.sleep(0)
        self.hear()

    def create(self, name: str, *scopes: str, **fields: Any) -> str:
        token = tokens.draw()
        told = {
            "id": tokens.id_of(token), "digest": tokens.digest_of(token), "principal": name,
            "scopes": [parse_scope(text).to_wire() for text in scopes], "at_ms": self.now_ms,
        }  # fmt: skip
        assert "ok" in self.controller.do("create_token", **{**told, **fields})
        return token

    def revoke(self, token: str) -> None:
        assert "ok" in self.controller.do("revoke_token", id=tokens.id_of(token))

    def find(
        self, token: str | None = None, certificate: Certificate | None = None, **shown: Any
    ) -> Rights | OpenAccess:
        how = {"address": "10.0.0.1:99", "private": True, **shown}
        return asyncio.run(self.accesses.of_request(Shown(token, certificate, **how)))

    def refusal(self, *given: Any, **shown: Any) -> str:
        with pytest.raises(Unauthorized) as caught:
            self.find(*given, **shown)
        return caught.value.message


def test_without_tokens_everybody_may_do_everything() -> None:
    world = World(auth=False)
    found = world.find()
    assert isinstance(found, OpenAccess)
    assert found.principal == Principal("10.0.0.1")
    assert world.find(None, CERTIFICATE).principal == Principal("client app")
    assert "unknown" in world.refusal(tokens.draw())


def test_with_tokens_nobody_may_do_anything_without_one() -> None:
    world = World()
    assert "give a token" in world.refusal()
    assert "certificate 'client app' has no rights" in world.refusal(None, CERTIFICATE)
    assert isinstance(world.find(world.admin), Rights)
    assert world.metrics.clients_refused._value.get() == 2


def test_a_node_with_auth_serves_nobody_before_it_knows_a_token() -> None:
    world = World(auth=False, wants_auth=True)
    assert "give a token" in world.refusal()


@pytest.mark.parametrize("change", ["other secret", "other id", "cut", "longer", "not a token"])
def test_only_the_whole_token_is_believed(change: str) -> None:
    world = World()
    token_id, _, secret = world.admin.partition(".")
    wrong = {
        "other secret": f"{token_id}.{tokens.draw().partition('.')[2]}",
        "other id": f"{tokens.id_of(tokens.draw())}.{secret}",
        "cut": world.admin[:-1],
        "longer": world.admin + "0",
        "not a token": "no-token-at-all",
    }[change]
    message = world.refusal(wrong)
    assert wrong not in message
    assert secret not in message


def test_a_node_that_has_just_started_serves_nobody_by_what_it_remembers() -> None:
    """The token may have been revoked while the node was down."""
    world = World()
    world.fresh = False
    for token in (world.admin, None):
        with pytest.raises(Unavailable, match="since its start"):
            world.find(token)
    world.fresh = True
    world.find(world.admin)
    open_world = World(auth=False)
    open_world.fresh = False
    open_world.find()


def test_a_token_that_came_unencrypted_is_refused() -> None:
    assert "revoke the token" in World().refusal(World().admin, private=False)
    world = World()
    assert "revoke the token" in world.refusal(world.admin, private=False)


def test_a_token_gives_its_principal_and_its_class() -> None:
    world = World()
    token = world.create("app", "read acme/*", quota_class="gold")
    world.hear()
    assert world.find(token).principal == Principal("app", "acme", "gold")
    assert world.find(token) is world.find(token)


def test_a_record_names_a_certificate_and_a_token_comes_first() -> None:
    world = World()
    world.create("backup", "read", digest=None, certificate="client app")
    world.hear()
    assert world.find(None, CERTIFICATE).principal.name == "backup"
    assert world.find(world.admin, CERTIFICATE).principal.name == "admin"
    other = Certificate(b"f", "k", 0, 1, "app", ())
    assert "'name app' has no rights" in world.refusal(None, other)
    of_node = Certificate(b"f", "k", 0, 1, "app", ("lognode://cluster/c/node/app",))
    assert "'node app' has no rights" in world.refusal(None, of_node)


def test_a_new_token_is_asked_for_once_a_second_by_all_together() -> None:
    world = World()
    token = world.create("app", "read")

    async def run() -> None:
        began = asyncio.get_running_loop().time()

        async def ask(token: str) -> bool:
            try:
                await world.accesses.of_request(Shown(token, None, "h:1", private=True))
            except Unauthorized:
                return False
            return True

        assert await asyncio.gather(*(ask(token) for _ in range(20))) == [True] * 20
        assert world.refreshes == 1
        assert await asyncio.gather(*(ask(tokens.draw()) for _ in range(500))) == [False] * 500
        assert world.refreshes == 2, "all of them waited for one"
        assert asyncio.get_running_loop().time() - began >= 1.0
        # A token that is new within a second of a stranger's was refused.
        assert not await ask(tokens.draw())
        assert await ask(world.create("late", "read"))

    asyncio.run(run())


def test_a_hello_without_anything_makes_no_work_for_the_controller() -> None:
    world = World()
    for _ in range(3):
        world.refusal()
    assert world.refreshes == 0


def test_X5_a_client_key_of_scram_is_as_good_as_its_token() -> None:
    world = World()
    world.controller.metadata.feature_level = SCRAM_FROM
    token = tokens.draw()
    kept = scram.kept_keys(token)
    world.create("app", "read", id=tokens.id_of(token), digest=tokens.digest_of(token), scram=kept)
    found = asyncio.run(world.accesses.scram_keys(tokens.id_of(token)))
    assert (found, world.refreshes) == (kept, 1), "the node asked for news"
    salted = hashlib.pbkdf2_hmac("sha256", token.encode(), tokens.id_of(token).encode(), 4_096)
    key = hmac.digest(salted, b"Client Key", "sha256")
    text = scram.text_of(tokens.id_of(token), "SCRAM-SHA-256", key)
    assert world.find(text) is world.find(token)
    assert "revoke the token" in world.refusal(text, private=False)
    assert "unknown" in world.refusal(text[:-1] + ("0" if text[-1] != "0" else "1"))
    world.revoke(token)
    world.hear()
    assert "unknown" in world.refusal(text)
    refreshed = world.refreshes
    with pytest.raises(Unauthorized, match="no token with this id has keys for SCRAM"):
        asyncio.run(world.accesses.scram_keys(tokens.id_of(token)))
    assert world.refreshes == refreshed, "no news can bring back a revoked token"
    with pytest.raises(Unauthorized, match="or use PLAIN"):
        asyncio.run(world.accesses.scram_keys(tokens.id_of(world.admin)))


def test_an_expired_token_is_refused() -> None:
    world = World()
    token = world.create("app", "read", expires_ms=world.now_ms + 10)
    world.hear()
    world.find(token)
    world.now_ms += 10
    assert "has expired" in world.refusal(token)
    assert not world.refreshes, "no news can change that, and asking for news takes up to 2 s"


def test_a_revoked_token_is_refused_without_asking_for_news(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(access, "_REVOKED_MAX", 2)
    world = World()
    first, *later = (world.create(f"app{number}", "read") for number in range(3))
    for token in (first, *later):
        world.hear()
        world.revoke(token)
        world.hear()
    for token in later:
        assert "revoked" in world.refusal(token)
    assert not world.refreshes, "no news can bring the token back, and each waits up to 1 s"
    assert "revoked" in world.refusal(first)
    assert world.refreshes == 1, "the node remembers the last two"


def _revoke(world: World, token: str) -> None:
    world.revoke(token)
    world.hear()


def _expire(world: World, token: str) -> None:
    world.now_ms += 10
    world.accesses.look()


@pytest.mark.parametrize(("end", "told"), [(_revoke, "revoked"), (_expire, "expired")])
def test_connections_end_with_their_token(end: Callable[[World, str], None], told: str) -> None:
    world = World()
    token = world.create("app", "read", expires_ms=world.now_ms + 10)
    world.hear()
    mine, others = Connection(world.find(token)), Connection(world.find(world.admin))
    closed = Connection(world.find(token))
    for connection in (mine, others, closed):
        world.accesses.opened(connection)  # type: ignore[arg-type]
    world.accesses.closed(closed)  # type: ignore[arg-type]
    world.accesses.look()
    assert not mine.errors
    end(world, token)
    assert [(type(e), told in e.message) for e in mine.errors] == [(Unauthorized, True)]
    assert (others.errors, closed.errors) == ([], [])
    world.accesses.look()
    assert len(mine.errors) == 1


def test_connections_of_strangers_end_with_the_first_token() -> None:
    world = World(auth=False)
    idle, asks = Connection(world.find()), Connection(world.find())
    for connection in (idle, asks):
        world.accesses.opened(connection)  # type: ignore[arg-type]
    world.hear()
    assert not idle.errors
    asked = {"name": "x", "changes": {}}
    assert asks.access.authorise(ALTER_LOG, asked) is None
    asks.awaits_answers = True
    world.create("admin", "all")
    world.hear()
    assert (len(idle.errors), len(asks.errors)) == (1, 0)
    with pytest.raises(Unauthorized, match="give a token"):
        asks.access.authorise(ALTER_LOG, asked)
    asks.awaits_answers = False  # it has its answer
    world.accesses.look()
    assert len(asks.errors) == 1


def test_a_token_that_revokes_itself_gets_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may ask for nothing more, and waits for half a second."""
    world = World()
    token = world.create("other", "all")
    world.hear()
    asks = Connection(world.find(token))
    asks.awaits_answers = True
    world.accesses.opened(asks)  # type: ignore[arg-type]
    _revoke(world, token)
    assert not asks.errors
    with pytest.raises(Unauthorized, match="revoked"):
        asks.access.authorise(ALTER_LOG, {"name": "x", "changes": {}})
    world.accesses.look()
    assert not asks.errors
    monkeypatch.setattr(access, "_ANSWER_S", 0.0)
    world.accesses.look()
    assert len(asks.errors) == 1


def test_news_of_other_things_do_not_look_at_connections() -> None:
    """There is an image at each change of a range, and a node far from the controller reads the
    same tokens from each anew: rights are compared by identity."""
    world = World()
    token = world.create("app", "read")
    world.hear()
    rights = world.find(token)
    assert isinstance(rights, Rights)
    seen: list[str] = []
    world.accesses.look = lambda: seen.append("look")  # type: ignore[method-assign]
    for _ in range(3):
        world.hear()
        assert rights.record is world.known.tokens[tokens.id_of(token)]
    assert not seen
    world.create("another", "read")
    world.hear()
    assert seen == ["look"]
    assert rights.record is world.known.tokens[tokens.id_of(token)]
    assert world.find(token) is rights


def test_news_are_given_up_with_the_asker() -> None:
    world = World()

    async def run() -> None:
        found = world.accesses.of_client(Shown(tokens.draw(), None, "h:1", private=True))
        assert isinstance(found, Awaitable)
        task = asyncio.ensure_future(found)
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()

    asyncio.run(run())


def test_rights_hold_for_so_long_without_news_and_come_back_with_them() -> None:
    """A node that is cut off from the controller does not hear of a token that is revoked."""
    world = World(lease_s=60.0)
    rights = world.find(world.admin)
    assert isinstance(rights, Rights)
    idle, asks = Connection(rights), Connection(rights)
    asks.awaits_answers = True
    for connection in (idle, asks):
        world.accesses.opened(connection)  # type: ignore[arg-type]
    asked = {"name": "x", "changes": {}}
    world.unsure_s = 60.0
    world.accesses.look()
    assert rights.authorise(ALTER_LOG, asked) is None
    assert world.find(world.admin) is rights
    assert not idle.errors
    world.unsure_s = 60.1
    for call in (lambda: rights.authorise(ALTER_LOG, asked), lambda: world.find(world.admin)):
        with pytest.raises(Unavailable, match="ask another node"):
            call()
    assert world.refreshes == 0
    world.accesses.look()
    assert [type(error) for error in idle.errors] == [Unavailable]
    assert not asks.errors, "what has been asked for is answered for half a second"
    world.unsure_s = 60.6  # it stays so while nobody confirms
    world.accesses.look()
    world.accesses.look()
    assert (len(idle.errors), len(asks.errors)) == (1, 1)
    world.unsure_s = 0.5
    assert rights.authorise(ALTER_LOG, asked) is None
    assert world.find(world.admin) is rights


@pytest.mark.parametrize("world", [World(), World(auth=False, lease_s=60.0)])
def test_rights_hold_for_ever_without_a_lease_or_without_tokens(world: World) -> None:
    world.unsure_s = 1e9
    found = world.find(world.admin or None)
    world.accesses.opened(Connection(found))  # type: ignore[arg-type]
    world.accesses.look()
    assert found.authorise(ALTER_LOG, {"name": "x", "changes": {}}) is None
