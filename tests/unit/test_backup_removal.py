"""Removal of backups: no backup ever lacks an object, and what no backup names goes in the end.

The random test runs `create`s and removals beside each other on a store in memory, one operation of
the store at a time in an order that the seed draws. It kills them before and after operations, lets
them stand still while the clock goes on for hours, and lets them go on then.
"""

import random
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lognode.client.backup.claims import STALE_MS, Claim, begin_sweep, claims, sweeps
from lognode.client.backup.manifest import LogBackup, Manifest, Object, Part
from lognode.client.backup.owners import Owners
from lognode.client.backup.sealing import Sealing
from lognode.client.backup.store import Store, path_of
from lognode.client.backup.sweep import Removal
from lognode.client.objects.directory import DirectoryStore
from lognode.client.objects.store import Listed, ObjectStore
from lognode.client.protocol.errors import (
    Conflict,
    CorruptData,
    InvalidArgument,
    LognodeError,
    NotFound,
)

HOUR_MS = 3_600_000
BEGIN_MS = 1_800_000_000_000


class Killed(BaseException):
    """The process of an actor was killed."""


class Memory(ObjectStore):
    """A store in memory."""

    place = "memory"

    def __init__(self) -> None:
        self.contents: dict[str, bytes] = {}

    def put(self, name: str, content: bytes, *, replace: bool = False) -> bool:
        if name in self.contents and not replace:
            return False
        self.contents[name] = content
        return True

    def get(self, name: str, bytes_max: int) -> bytes | None:
        return self.contents.get(name)

    def get_range(self, name: str, begin: int, end: int) -> bytes | None:
        raise NotImplementedError

    def objects(self, folder: str = "") -> Iterator[Listed]:
        for name, content in sorted(self.contents.items()):
            if name.startswith(f"{folder}/"):
                yield Listed(name, len(content))

    def delete(self, name: str) -> None:
        self.contents.pop(name, None)


class Actor(threading.Thread):
    """A process: each of its operations on the store waits for a `step`."""

    def __init__(self, work: Callable[["Seat"], None], memory: Memory) -> None:
        super().__init__(daemon=True)
        self.is_over = False
        self.error: LognodeError | None = None
        self.killed: str | None = None
        self.go, self.stands = threading.Semaphore(0), threading.Semaphore(0)
        self._work = work
        self._seat = Seat(memory, self)
        self.start()
        self.stands.acquire()

    def run(self) -> None:
        try:
            self._work(self._seat)
        except LognodeError as error:
            self.error = error
        except Killed:
            pass
        self.is_over = True
        self.stands.release()

    def step(self) -> None:
        """Let one operation happen."""
        self.go.release()
        self.stands.acquire()


class Seat(Memory):
    """The store as one actor sees it."""

    def __init__(self, memory: Memory, actor: Actor) -> None:
        self.contents = memory.contents
        self.actor = actor

    def _once(self, operation: Callable[[], object]) -> object:
        actor = self.actor
        if actor.killed is None:
            actor.stands.release()
            actor.go.acquire()
        if actor.killed == "before":
            raise Killed
        found = operation()
        if actor.killed is not None:
            actor.killed = "before"
            raise Killed
        return found

    def put(self, name: str, content: bytes, *, replace: bool = False) -> bool:
        return bool(self._once(lambda: super(Seat, self).put(name, content, replace=replace)))

    def get(self, name: str, bytes_max: int) -> bytes | None:
        found = self._once(lambda: super(Seat, self).get(name, bytes_max))
        assert found is None or isinstance(found, bytes)
        return found

    def objects(self, folder: str = "") -> Iterator[Listed]:
        found = self._once(lambda: list(super(Seat, self).objects(folder)))
        assert isinstance(found, list)
        yield from found

    def delete(self, name: str) -> None:
        self._once(lambda: super(Seat, self).delete(name))


class Actors(Owners):
    """The actors as processes of one machine, where everybody sees which actor was killed."""

    def __init__(self, world: "World", seat: Seat) -> None:
        self._world = world
        self._actor = seat.actor

    def told(self) -> dict[str, Any]:
        return {"actor": self._actor.name}

    def has_ended(self, told: Any) -> bool:
        (actor,) = (each for each in self._world.actors if each.name == told["actor"])
        return actor.killed is not None


class Nobody(Owners):
    """Processes of machines that tell nothing."""

    def told(self) -> None:
        return None


class World:
    """A store, a clock, and the actors."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.now_ms = BEGIN_MS
        self.is_one_machine = rng.random() < 0.5
        self.memory = Memory()
        self.actors: list[Actor] = []
        self.store = Store(self.memory, Sealing())
        self._read: dict[str, set[str]] = {}

    def clock(self) -> int:
        return self.now_ms

    def _owners(self, seat: Seat) -> Owners:
        """Half of the worlds are one machine; in the others nobody knows who was killed."""
        return Actors(self, seat) if self.is_one_machine else Nobody()

    def create(self, seat: Seat) -> None:
        """Do to the store what `create.create` does."""
        store = Store(seat, Sealing())
        claim = Claim.taken(store, self.clock, self._owners(seat))
        try:
            names = []
            for content in self.rng.sample(range(8), self.rng.randint(1, 4)):
                names.append(store.put_object(b"content %d" % content)[0])
                if self.rng.random() < 0.3:
                    claim.renew()
            claim.finish(manifest(claim, names))
        finally:
            claim.release()

    def delete(self, seat: Seat) -> None:
        there = self.store.backups()
        names = self.rng.sample(there, min(len(there), self.rng.randint(0, 2)))
        store = Store(seat, Sealing())
        removal = Removal.of_names(store, names, self.clock, self._owners(seat))
        removal.run(lambda *_: None, 1)

    def prune(self, seat: Seat) -> None:
        store, keep = Store(seat, Sealing()), self.rng.randint(1, 3)
        removal = Removal.of_rule(store, keep, None, self.clock, self._owners(seat))
        removal.run(lambda *_: None, 1)

    def run(self, steps: int) -> None:
        """Let the actors act, check after each operation that no backup lacks an object, and kill
        the actors at the end."""
        try:
            self._run(steps)
        finally:
            for actor in self.actors:
                while not actor.is_over:
                    actor.killed = "before"
                    actor.step()
                actor.join()

    def _run(self, steps: int) -> None:
        for _ in range(steps):
            self.now_ms += self.rng.choice((1, 1, 1, 1_000, 60_000))
            if self.rng.random() < 0.02:
                self.now_ms += STALE_MS
            live = [actor for actor in self.actors if not actor.is_over]
            if len(live) < 4:
                work = self.rng.choice((self.create, self.create, self.delete, self.prune))
                self.actors.append(Actor(work, self.memory))
                continue
            actor = self.rng.choice(live[: self.rng.randint(1, 4)])
            if self.rng.random() < 0.02:
                actor.killed = self.rng.choice(("before", "after"))
            actor.step()
            self.check()

    def check(self) -> None:
        for backup in self.store.backups():
            for name in self._names(backup):
                assert path_of(name) in self.memory.contents, f"backup {backup} lacks {name}"

    def _names(self, backup: str) -> set[str]:
        if backup not in self._read:
            self._read[backup] = Manifest.of(backup, self.store.manifest(backup)).objects()
        return self._read[backup]

    def settle(self) -> None:
        """Let a last removal find all that the actors left."""
        for actor in self.actors:
            if actor.error is not None:
                allowed = (Conflict, NotFound, InvalidArgument)
                assert isinstance(actor.error, allowed), repr(actor.error)
        self.now_ms += 2 * STALE_MS
        self.store.put_object(b"left")  # without an object to remove, claims would stay too
        Removal.of_rule(self.store, 2, None, self.clock).run(lambda *_: None)
        self.check()
        backups = self.store.backups()
        named = set[str]().union(*map(self._names, backups))
        assert {name for name, _ in self.store.stored()} == named
        assert claims(self.store, self.clock) == []
        for name in named:
            assert self.store.object(name)[0].startswith(b"content")


def manifest(claim: Claim, names: list[str], log: str = "log") -> bytes:
    part = Part(b"", None, 9, [], [Object(name, 1, 1) for name in names])
    logs = [LogBackup(log, {}, None, [part])]
    return Manifest(claim.backup, claim.created_ms, "cluster", logs).to_bytes()


@pytest.mark.parametrize("seed", range(40))
def test_no_backup_ever_lacks_an_object(seed: int) -> None:
    world = World(random.Random(seed))
    world.run(1_200)
    world.settle()
    made = [actor for actor in world.actors if actor.killed is None and actor.error is None]
    assert len(made) > 5


# One case each.


@pytest.fixture(params=["plain", "encrypted"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    objects = DirectoryStore(tmp_path / "store")
    secret = b"a long secret" if request.param == "encrypted" else None
    return Store.opened(objects, secret, create=True)


def again(store: Store) -> Store:
    """The store as another process opens it."""
    return Store(store.objects, store.sealing)


def created(store: Store, at_ms: int, *contents: bytes, log: str = "log") -> str:
    store = again(store)
    claim = Claim.taken(store, lambda: at_ms)
    claim.finish(manifest(claim, [store.put_object(each)[0] for each in contents], log))
    claim.release()
    return claim.backup


def removed(store: Store, *backups: str) -> tuple[int, int]:
    """Remove backups. Return the objects and bytes that were removed."""
    removal = Removal.of_names(again(store), backups, lambda: BEGIN_MS)
    before = removal.preview()
    result = removal.run(lambda *_: None)
    assert result == before, "a dry run says what goes"
    return result.objects, result.freed_bytes


def contents(store: Store) -> list[bytes]:
    return sorted(store.object(name)[0] for name, _ in store.stored())


def test_objects_that_another_backup_names_stay(store: Store) -> None:
    first = created(store, BEGIN_MS, b"one", b"two")
    second = created(store, BEGIN_MS + 1, b"two", b"three")
    sizes = {store.object(name)[0]: size for name, size in store.stored()}
    assert removed(store, first) == (1, sizes[b"one"])
    assert contents(store) == [b"three", b"two"]
    assert store.backups() == [second]


def test_objects_from_before_a_sweep_are_used_only_if_a_backup_names_them(store: Store) -> None:
    first = created(store, BEGIN_MS, b"one", b"two")
    created(store, BEGIN_MS + 1, b"two")
    removed(store, first)
    store.put_object(b"left by a create that was killed")
    created(store, BEGIN_MS + 2, b"one", b"two", b"left by a create that was killed")
    names = sorted(name.partition(".")[2] for name, _ in store.stored())
    assert names == ["", "", "1", "1"]
    again_made = created(store, BEGIN_MS + 3, b"one")
    assert len(list(store.stored())) == 4
    removed(store, again_made)
    assert contents(store) == [b"left by a create that was killed", b"one", b"two"]


def test_a_create_that_runs_keeps_all_objects(store: Store) -> None:
    first = created(store, BEGIN_MS, b"one")
    created(store, BEGIN_MS + 1, b"two")
    running = again(store)
    claim = Claim.taken(running, lambda: BEGIN_MS + 2)
    names = [running.put_object(b"one")[0]]
    removal = Removal.of_names(again(store), [first], lambda: BEGIN_MS + STALE_MS)
    result = removal.run(lambda *_: None)
    assert (result.objects, [each.backup for each in result.creating]) == (0, [claim.backup])
    assert "process" in result.creating[0].owner
    claim.finish(manifest(claim, names))
    claim.release()
    assert Removal.of_rule(again(store), 3, None).run(lambda *_: None).objects == 0
    assert contents(store) == [b"one", b"two"]


def test_a_create_that_stood_still_for_too_long_makes_no_backup(store: Store) -> None:
    created(store, BEGIN_MS, b"two")
    running = again(store)
    claim = Claim.taken(running, lambda: BEGIN_MS + 1)
    names = [running.put_object(b"one")[0]]
    late = Removal.of_names(again(store), [], lambda: BEGIN_MS + 2 + STALE_MS)
    assert late.run(lambda *_: None).objects == 1
    with pytest.raises(Conflict, match=r"gave up the backup .* Make the backup again"):
        claim.finish(manifest(claim, names))
    claim.release()
    assert len(store.backups()) == 1
    with pytest.raises(NotFound, match="there is no backup"):
        store.manifest(claim.backup)


def test_a_claim_that_cannot_be_read_does_not_stop_removals_for_ever(store: Store) -> None:
    created(store, BEGIN_MS, b"two")
    store.objects.put("creating/20200101T000000000Z", b"no claim")
    store.put_object(b"left")
    removed(store)
    assert contents(store) == [b"two"]
    assert list(store.objects.objects("creating")) == []


def test_a_cancelled_create_makes_no_backup(store: Store) -> None:
    claim = Claim.taken(again(store), lambda: BEGIN_MS)
    claim.release()
    with pytest.raises(Conflict, match="was cancelled"):
        claim.finish(manifest(claim, []))
    assert store.backups() == []


def test_bad_names_are_refused(store: Store) -> None:
    first, second = created(store, BEGIN_MS, b"one"), created(store, BEGIN_MS + 1, b"two")
    near = first[:-2] + "9Z"
    with pytest.raises(NotFound, match=f"no backup '{near}'; did you mean .*backup list"):
        Removal.of_names(store, [near])
    with pytest.raises(InvalidArgument, match="no backup would stay"):
        Removal.of_names(store, [first, second])
    assert store.backups() == [first, second]


def test_a_damaged_manifest_stops_removals_until_the_backup_is_removed(store: Store) -> None:
    made = [created(store, BEGIN_MS + at, b"%d" % at) for at in range(3)]
    store.objects.put(f"backups/{made[1]}", b"", replace=True)
    for choose in (
        lambda: Removal.of_names(store, [made[0]]), lambda: Removal.of_rule(store, 1, None)
    ):  # fmt: skip
        with pytest.raises(CorruptData, match=f"delete STORE {made[1]}"):
            choose()
    created(store, BEGIN_MS + 9, b"0")  # a backup needs no other manifest
    assert removed(store, made[1])[0] == 1
    assert contents(store) == [b"0", b"2"]


def test_a_rule_counts_the_backups_of_each_log(store: Store) -> None:
    orders = [created(store, BEGIN_MS + at * HOUR_MS, b"o", log="orders") for at in range(5)]
    users = [created(store, BEGIN_MS + at * HOUR_MS + 1, b"u", log="users") for at in range(2)]

    def doomed(keep: int, within_ms: int | None = None) -> set[str]:
        return set(Removal.of_rule(store, keep, within_ms).doomed)

    assert doomed(1) == {*orders[:4], users[0]}
    assert doomed(2) == {*orders[:3]}
    assert doomed(2, 3 * HOUR_MS) == {orders[0]}
    assert doomed(0, 0) == {*orders[:4], users[0]}
    assert doomed(9) == set()


def test_sweeps_have_different_numbers(store: Store) -> None:
    assert [begin_sweep(store) for _ in range(3)] == [1, 2, 3]
    assert sweeps(store) == [3]
