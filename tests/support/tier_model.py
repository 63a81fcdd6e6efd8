"""A tier in memory with lost answers and old listings; leaders, and sweeps beside them.

Each request may be interrupted by any other actor, for as long as several of its steps: as if the
interrupted process had been paused before its request arrived. Interruptions nest. A put may take
place although its answer is lost, or be lost itself. A listing may be from an earlier moment.
"""

import hashlib
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Any

from lognode.client.objects.store import Listed, ObjectStore
from lognode.client.protocol.errors import LognodeError, Unavailable
from lognode.node.tier import coverage, planning
from lognode.node.tier.manifest import Held, LogFacts, Manifest
from lognode.node.tier.names import Chain, StoredFile, file_of
from lognode.node.tier.planning import Own
from lognode.node.tier.sweeps import Sweep
from lognode.node.tier.tier_store import TierStore

FACTS = LogFacts(1, "orders", {"replicas": 3})
_OLD_MAX = 40
"""How many requests ago a listing may be from."""


class MemoryObjects(ObjectStore):
    """A store in memory. `before` is called before each request."""

    place = "memory"

    def __init__(self) -> None:
        self.found: dict[str, bytes] = {}
        self.before: Callable[[], None] = lambda: None
        self.loses: Callable[[], str] = lambda: ""
        """Which message of a put is lost: "" or "answer" or "request"."""
        self.age: Callable[[], int] = lambda: 0
        """How many requests ago a listing is from."""
        self._past: list[dict[str, bytes]] = []

    def put(self, name: str, content: bytes, *, replace: bool = False) -> bool:
        self.before()
        fate = self.loses()
        if fate == "request":
            raise self.failed(Unavailable, "no answer")
        is_stored = replace or name not in self.found
        if is_stored:
            self.found[name] = content
            self._past = [*self._past[-_OLD_MAX:], dict(self.found)]
        if fate == "answer":
            raise self.failed(Unavailable, "no answer")
        return is_stored

    def get(self, name: str, bytes_max: int) -> bytes | None:
        self.before()
        return self.found.get(name)

    def get_range(self, name: str, begin: int, end: int) -> bytes | None:
        raise NotImplementedError

    def objects(self, folder: str = "") -> Iterator[Listed]:
        self.before()
        age = self.age()
        found = self.found if not age or not self._past else self._past[-min(age, len(self._past))]
        listed = [Listed(name, len(content)) for name, content in sorted(found.items())]
        yield from (each for each in listed if not folder or each.name.startswith(f"{folder}/"))

    def delete(self, name: str) -> None:
        self.before()
        if self.found.pop(name, None) is not None:
            self._past = [*self._past[-_OLD_MAX:], dict(self.found)]


class Files:
    """The durable state of a member: each file has the entries [first, end) of the range."""

    def __init__(self, files: list[tuple[int, int]], index: int) -> None:
        self.files = files
        self.index = index

    def flush(self) -> None:
        """Apply one entry, in a file of its own."""
        last = self.files[-1][1] if self.files else 1
        self.files = [*self.files, (max(last, self.index), self.index + 1)]
        self.index += 1

    def merge(self, rng: random.Random) -> None:
        """Join two neighbours; the index stays."""
        if len(self.files) > 1:
            at = rng.randrange(len(self.files) - 1)
            joined = (self.files[at][0], self.files[at + 1][1])
            self.files = [*self.files[:at], joined, *self.files[at + 2 :]]

    def trim(self) -> None:
        """Apply an entry that removes the oldest file."""
        self.files = self.files[1:]
        self.flush()


def content_of(file: tuple[int, int]) -> bytes:
    """Return the bytes of a file."""
    return b"%d-%d" % file


def id_of(file: tuple[int, int]) -> str:
    """Return the content id of a file."""
    return hashlib.sha256(content_of(file)).hexdigest()


class Member:
    """A member that believes to lead. `step` does what `Uploads` does between two requests."""

    def __init__(
        self, store: TierStore, chain: Chain, span: tuple[bytes, bytes | None], files: Files,
        parents: tuple[Chain, ...] = (),
    ) -> None:  # fmt: skip
        self.files = files
        self.chain, self.span, self.parents = chain, span, parents
        self._store = store
        self.head: Manifest | None = None
        self._knows = False

    def own(self) -> Own:
        """Return what the member has."""
        files = {id_of(file): len(content_of(file)) for file in self.files.files}
        applied = (self.files.index, 1)
        return Own(self.chain, self.span, FACTS, applied, files, self.parents)

    def step(self, rng: random.Random) -> None:
        """Take one step. An error makes the member look at the head again."""
        try:
            self._step()
        except LognodeError:
            self._knows = False
        if rng.random() < 0.1:
            self._knows = False

    def _step(self) -> None:
        own = self.own()
        contents = {id_of(each): content_of(each) for each in self.files.files}
        if not self._knows:
            self.head, self._knows = self._store.head(self.chain, own), True
        match planning.next_step(own, self.head):
            case planning.Begin():
                closed = [
                    self._store.close(each, own, partial(planning.closing, own, each))
                    for each in self.parents
                ]
                following = planning.first(own, closed)
            case planning.Upload(content_id, size):
                assert self.head is not None
                file = StoredFile(self.chain, content_id, self.head.number)
                if self._store.missing_parts(file, size):
                    self._store.objects.put(file.part(0), contents[content_id])
                following = planning.with_file(own, self.head, content_id, Held(size, file.path))
                if planning.is_complete(own, following):
                    following = planning.based(own, following, b"%d" % own.applied[0])
            case planning.Publish():
                assert self.head is not None
                following = planning.next_of(self.head)
                following = planning.based(own, following, b"%d" % own.applied[0])
            case _:
                self._knows = False
                return
        following = replace(following, written_ms=own.applied[0])
        if self._store.publish(following):
            self.head = following
        else:
            self._knows = False


class World:
    """Members of a range, then of the two ranges of its split and of a move; and a sweep."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.objects = MemoryObjects()
        self.objects.before = self._interrupt
        self.objects.age = lambda: self.rng.randrange(1, _OLD_MAX) if self._chance(0.05) else 0
        self.objects.loses = self._fate
        self._depth = 0
        self._paused: set[int] = set()
        self._reached: dict[bytes, tuple[int, int]] = {}
        """For a key of each child, the generation and index from which a restore would read."""
        self.members: list[Member] = []
        self._sweeps = [Sweep(TierStore(self.objects), 0.0, lambda: 0.0) for _ in range(2)]
        files = Files([], 1)
        for _ in range(2):
            self._add(Chain(1, 1), (b"", None), files)

    def _chance(self, part: float) -> bool:
        return self.rng.random() < part

    def _fate(self) -> str:
        return self.rng.choice(("answer", "request")) if self._chance(0.05) else ""

    def _add(self, chain: Chain, span: Any, files: Files, parents: tuple[Chain, ...] = ()) -> None:
        own = Files(list(files.files), files.index)
        self.members.append(Member(TierStore(self.objects), chain, span, own, parents))

    def next_generation(self) -> None:
        """Begin the next generation: the range is split, then each part moves to other members."""
        last = max(member.chain.generation for member in self.members)
        olds = {m.chain: m for m in self.members if m.chain.generation == last}
        for chain, old in olds.items():
            newest = max(
                (m.files for m in self.members if m.chain == chain), key=lambda files: files.index
            )
            parts = [(chain.range_id, old.span)]
            if last == 1:
                parts = [(1, (b"", b"m")), (2, (b"m", None))]
            for range_id, span in parts:
                # The first index of a generation is that of its own log.
                files = Files(list(newest.files), newest.index)
                for _ in range(2):
                    self._add(Chain(range_id, last + 1), span, files, (chain,))

    def _interrupt(self) -> None:
        if self._depth < 3 and self._chance(0.03):
            self._depth += 1
            try:
                for _ in range(self.rng.randrange(1, 9)):
                    self.act()
            finally:
                self._depth -= 1

    def act(self) -> None:
        """Let an actor that is not paused do something."""
        choice = self.rng.random()
        members = [each for each in self.members if id(each) not in self._paused]
        sweeps = [each for each in self._sweeps if id(each) not in self._paused]
        if choice < 0.15 and sweeps:
            sweep = self.rng.choice(sweeps)
            with self._under_way(sweep), suppress(LognodeError):
                sweep.look(lambda log_id: False)
        elif members:
            member = self.rng.choice(members)
            if choice < 0.45:
                self._change(member)
            else:
                with self._under_way(member):
                    member.step(self.rng)
        self.check()

    @contextmanager
    def _under_way(self, actor: object) -> Iterator[None]:
        """Let nobody else act for this process, while its request may be interrupted."""
        self._paused.add(id(actor))
        try:
            yield
        finally:
            self._paused.discard(id(actor))

    def _change(self, member: Member) -> None:
        """Change what a member has, within what its generation has committed."""
        if any(member.chain in each.parents for each in self.members):
            member.files.merge(self.rng)  # sealed: it applies nothing more
            return
        choice = self.rng.random()
        if choice < 0.4:
            # All members of a generation apply the same entries, each at its own pace.
            member.files.flush()
        elif choice < 0.8:
            member.files.merge(self.rng)
        elif len(member.files.files) > 2:
            member.files.trim()

    def check(self) -> None:
        """A restore finds every file, and no key goes back to an earlier state."""
        heads = self.heads()
        logs = list(coverage.logs(heads.values()))
        pieces = logs[0].pieces if logs else []
        for key in (b"a", b"z"):
            here = [
                head for (start, end), head in pieces
                if start <= key and (end is None or key < end)
            ]  # fmt: skip
            assert len(here) <= 1, f"key {key!r} is in {here}"
            reached = (here[0].chain.generation, here[0].applied[0]) if here else (0, 0)
            assert reached >= self._reached.get(key, (0, 0)), f"key {key!r} went back"
            self._reached[key] = reached
            for head in here:
                self._check_files(head)

    def _check_files(self, head: Manifest) -> None:
        for content_id in head.files:
            file = file_of(head.held[content_id].path)
            assert file is not None
            content = self.objects.found.get(file.part(0))
            assert content is not None, f"{head.name} names {file.path}, which is gone"
            assert hashlib.sha256(content).hexdigest() == content_id

    def heads(self) -> dict[Chain, Manifest]:
        """Return the heads without faults."""
        quiet = TierStore(_Copy(self.objects.found))
        return dict(quiet.snapshot().heads)

    def settle(self) -> list[Member]:
        """End all faults; let one leader of each last generation publish, and sweep. Return them.

        The leader is a member that has applied most."""
        self.objects.before = lambda: None
        self.objects.age = lambda: 0
        self.objects.loses = lambda: ""
        last = max(member.chain.generation for member in self.members)
        ends = sorted(self.members, key=lambda member: member.files.index)
        leaders = {m.chain: m for m in ends if m.chain.generation == last}
        for _ in range(60):
            for member in leaders.values():
                member.step(self.rng)
        for _ in range(4):
            self._sweeps[0].look(lambda log_id: False)
        return list(leaders.values())


class _Copy(MemoryObjects):
    def __init__(self, found: dict[str, bytes]) -> None:
        super().__init__()
        self.found = dict(found)
