"""A tier in memory with lost answers and old listings; leaders, and sweeps beside them.

Each request may be interrupted by any other actor, for as long as several of its steps: as if the
interrupted process had been paused before its request arrived. Interruptions nest. A put may take
place although its answer is lost, or be lost itself. A listing may be from an earlier moment.
"""

import hashlib
import itertools
import random
from collections.abc import Callable, Container, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Any

from lognode.client.objects.store import Listed, ObjectStore
from lognode.client.protocol.errors import LognodeError, Unavailable
from lognode.node.tier import claims, coverage, planning
from lognode.node.tier.manifest import Held, LogFacts, Manifest
from lognode.node.tier.names import Chain, StoredFile, file_of
from lognode.node.tier.planning import Own
from lognode.node.tier.sweeps import Sweep
from lognode.node.tier.tier_store import TierStore

FACTS = LogFacts(1, "orders", {"replicas": 3})
_NODES = {1: (1, 2), 2: (1, 3), 3: (3, 2)}
"""The members of each generation."""
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
        self.before()
        found = self.found.get(name)
        if found is not None and len(found) < end:
            raise self.too_short(name, end)
        return None if found is None else found[begin:end]

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

    def merge(self, rng: random.Random, absent: Container[str]) -> None:
        """Join two local neighbours; the index stays."""
        pairs = [
            at for at in range(len(self.files) - 1)
            if id_of(self.files[at]) not in absent and id_of(self.files[at + 1]) not in absent
        ]  # fmt: skip
        if pairs:
            at = rng.choice(pairs)
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


class Disk:
    """The disk of a node: which files of its members it lacks."""

    _numbers = itertools.count(1)

    def __init__(self, node: int) -> None:
        self.node = node
        self.lacks: set[str] = set()
        self.members: list[Member] = []
        """The members of the last generation on the node."""

    def write(self, files: list[tuple[int, int]]) -> None:
        """Make these files local: the node has built or received them."""
        self.lacks.difference_update(map(id_of, files))

    def local(self) -> set[str]:
        """Return the files that a member names and the disk has."""
        named = {id_of(file) for each in self.members for file in each.files.files}
        return named - self.lacks

    def give_up(self, content_id: str) -> None:
        """Delete the local file, if each member that names the file has claimed the file.

        Each remembers a place of its own: the places in two chains may differ, and end apart.
        """
        names = (each for each in self.members if each.is_live and each.has(content_id))
        if all(content_id in each.kept for each in names):
            self.lacks.add(content_id)

    def said(self, word: Manifest) -> Manifest:
        """Return a manifest with claims as this node puts it."""
        return replace(word, node=self.node, written_ms=next(self._numbers))


class Member:
    """A member of a generation. `step` does what `Uploads` does between two requests.

    Each member may believe to lead. A member that is not live yet has no base.
    """

    def __init__(
        self, store: TierStore, disk: Disk, chain: Chain, span: tuple[bytes, bytes | None],
        members: tuple[int, ...], parents: tuple[Chain, ...] = (),
    ) -> None:  # fmt: skip
        self.disk = disk
        self.files = Files([], 1)
        self.is_live = False
        self.kept: dict[str, Held] = {}
        """Files that the tier keeps for this member."""
        self.chain, self.span, self.parents = chain, span, parents
        self._members = members
        self._store = store
        self.head: Manifest | None = None
        self._knows = False

    def begin(self, files: Files, kept: Mapping[str, Held]) -> None:
        """Begin with a base, whose files are local or kept in the tier."""
        self.files, self.is_live = Files(list(files.files), files.index), True
        self.kept = dict(kept)

    def has(self, content_id: str) -> bool:
        """Whether the member's base names a file."""
        return any(id_of(file) == content_id for file in self.files.files)

    @property
    def absent(self) -> dict[str, Held]:
        """The files of the member that its node has in the tier only."""
        return {name: self.kept[name] for name in self.lacks() if name in self.kept}

    def lacks(self) -> list[str]:
        """Return the files of the member that its node lacks. A replica of an earlier generation
        may lack files that nobody keeps for it."""
        return [name for name in map(id_of, self.files.files) if name in self.disk.lacks]

    def own(self) -> Own:
        """Return what the member has."""
        files = {id_of(file): len(content_of(file)) for file in self.files.files}
        applied = (self.files.index, 1)
        return Own(
            self.chain, self.span, FACTS, applied, files, self.parents, self._members, self.absent
        )

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
        head = self.head
        match step := planning.next_step(own, head):
            case planning.Begin():
                closed = [
                    self._store.close(each, own, partial(planning.closing, own, each))
                    for each in self.parents
                ]
                following = planning.first(own, closed)
            case planning.Upload(content_id) | planning.Adopt(content_id):
                assert head is not None
                if isinstance(step, planning.Adopt):
                    stored = step.held
                elif content_id in self.disk.lacks:
                    return
                else:
                    file = StoredFile(self.chain, content_id, head.number)
                    if self._store.missing_parts(file, step.size):
                        self._store.objects.put(file.part(0), contents[content_id])
                    stored = Held(step.size, file.path)
                following = planning.with_file(own, head, content_id, stored)
                if planning.is_complete(own, following):
                    following = planning.based(own, following, b"%d" % own.applied[0])
            case planning.Publish():
                assert head is not None
                following = planning.next_of(head)
                following = planning.based(own, following, b"%d" % own.applied[0])
            case _:
                self._knows = False
                return
        following = replace(following, node=self.disk.node, written_ms=own.applied[0])
        if self._store.publish(following):
            self.head = following
        else:
            self._knows = False

    # What is in the tier only.

    def speak(self, wished: list[str]) -> None:
        """Claim what the node has in the tier only, and files that it wishes to give up."""
        head = self._store.head(self.chain, self.own())
        # A file with a place may still be on the disk: another member of the node needs the file.
        places = {name: held for name, held in self.kept.items() if self.has(name)}
        new = [name for name in wished if name not in places]
        word = claims.spoken(self.disk.node, head, places | self._added(head, new), new)
        if word is None:
            return
        said = set(word.claims[self.disk.node])
        self.kept = {name: held for name, held in self.kept.items() if name in said}
        found = self._put(word)
        self.kept |= found
        for name in wished:
            if name in self.kept and self.has(name):
                self.disk.give_up(name)

    def _added(self, head: Manifest | None, wished: list[str]) -> dict[str, Held]:
        """Upload a wished file that the head does not hold, with the label of the head."""
        if head is None or head.closed:
            return {}
        for each in self.files.files:
            name, content = id_of(each), content_of(each)
            if name in wished and name not in head.held and name not in self.disk.lacks:
                file = StoredFile(self.chain, name, head.number)
                if self._store.missing_parts(file, len(content)):
                    self._store.objects.put(file.part(0), content)
                return {name: Held(len(content), file.path)}
        return {}

    def join(self, giver: "Member") -> None:
        """Take the base of another member, and leave in the tier what its node has there only."""
        base = Files(list(giver.files.files), giver.files.index)
        here = self.disk.local()
        lacks = [
            name for name in map(id_of, base.files)
            if name in giver.disk.lacks and name not in here
        ]  # fmt: skip
        found: dict[str, Held] = {}
        for chain in (self.chain, *self.parents):
            if lacks and not found:
                head = self._store.head(chain, giver.own())
                word = claims.joining(self.disk.node, head, lacks)
                found = {} if word is None else self._put(word)
        if found.keys() >= set(lacks):
            self.disk.write([file for file in base.files if id_of(file) not in lacks])
            self.disk.lacks.update(set(lacks) - self.disk.local())
            self.begin(base, found)

    def _put(self, word: Manifest) -> dict[str, Held]:
        """Put a manifest with claims; return what the tier has for this node from now on."""
        said = self.disk.said(word)
        if not self._store.publish(said):
            return {}
        return claims.granted(self.disk.node, said, self._store.head(said.chain, self.own()))


class World:
    """Members of a range, then of the two ranges of its split and of a move; and a sweep.

    Members delete local files that the tier has, and new members leave such files in the tier.
    """

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
        self.given_up = self.left = 0
        """How often a member has deleted a file, and a new member has left files in the tier."""
        self.members: list[Member] = []
        self._sweeps = [Sweep(TierStore(self.objects), 0.0, lambda: 0.0) for _ in range(2)]
        for node in _NODES[1]:
            self._add(Disk(node), Chain(1, 1), (b"", None)).begin(Files([], 1), {})

    def _chance(self, part: float) -> bool:
        return self.rng.random() < part

    def _fate(self) -> str:
        return self.rng.choice(("answer", "request")) if self._chance(0.05) else ""

    def _add(self, disk: Disk, chain: Chain, span: Any, parents: tuple[Chain, ...] = ()) -> Member:
        store, nodes = TierStore(self.objects), _NODES[chain.generation]
        member = Member(store, disk, chain, span, nodes, parents)
        self.members.append(member)
        disk.members.append(member)
        return member

    def newest(self) -> list[Member]:
        """Return the members of the last generation."""
        last = max(member.chain.generation for member in self.members)
        return [member for member in self.members if member.chain.generation == last]

    def next_generation(self) -> None:
        """Begin the next generation: the range is split, then each part moves to other members.

        A node that was a member before applies all entries, and goes on with its own base. Each
        other node joins.
        """
        olds = [each for each in self.newest() if each.is_live]
        generation = olds[0].chain.generation + 1
        chains = dict.fromkeys(each.chain for each in self.newest())
        stay = {each.chain for each in olds if each.disk.node in _NODES[generation]}
        if stay != chains.keys():
            return  # no quorum of the next generation would have a base
        disks = {each.disk.node: each.disk for each in self.newest()}
        for disk in disks.values():
            disk.members = []
        for node in _NODES[generation]:
            disks.setdefault(node, Disk(node))
        for chain in chains:
            some = [each for each in olds if each.chain == chain]
            end = max(each.files.index for each in some)
            parts = [(chain.range_id, some[0].span)]
            if generation == 2:
                parts = [(1, (b"", b"m")), (2, (b"m", None))]
            for range_id, span in parts:
                for node in _NODES[generation]:
                    # The first index of a generation is that of its own log.
                    new = self._add(disks[node], Chain(range_id, generation), span, (chain,))
                    for old in some:
                        if old.disk.node == node:
                            while old.files.index < end:
                                self._flush(old)
                            new.begin(old.files, old.absent)

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
            if not member.is_live or choice < 0.2:
                with self._under_way(member):
                    self._join(member)
            elif choice < 0.4:
                self._change(member)
            elif choice < 0.55:
                with self._under_way(member):
                    self._speak(member)
            else:
                with self._under_way(member):
                    member.step(self.rng)
        self.check()

    def _speak(self, member: Member) -> None:
        local = [id_of(file) for file in member.files.files if id_of(file) not in member.disk.lacks]
        wished = self.rng.sample(local, self.rng.randrange(len(local) + 1))
        before = len(member.disk.lacks)
        with suppress(LognodeError):
            member.speak(wished)
        self.given_up += len(member.disk.lacks) > before

    def _join(self, member: Member) -> None:
        """Give a member the base of another member, which has applied more."""
        givers = [
            each for each in self.members
            if each.is_live and each.chain in (member.chain, *member.parents)
            and (not member.is_live or each.files.index > member.files.index)
        ]  # fmt: skip
        if givers:
            with suppress(LognodeError):
                member.join(self.rng.choice(givers))
            self.left += bool(member.absent)

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
            self._merge(member)  # sealed: it applies nothing more
            return
        choice = self.rng.random()
        if choice < 0.4:
            # All members of a generation apply the same entries, each at its own pace.
            self._flush(member)
        elif choice < 0.8:
            self._merge(member)
        elif len(member.files.files) > 2:
            member.files.trim()
            member.disk.write(member.files.files[-1:])

    def _flush(self, member: Member) -> None:
        member.files.flush()
        member.disk.write(member.files.files[-1:])

    def _merge(self, member: Member) -> None:
        before = set(member.files.files)
        member.files.merge(self.rng, member.disk.lacks)
        member.disk.write([file for file in member.files.files if file not in before])

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
                for content_id in head.files:
                    self._check_file(content_id, head.held[content_id], head.name)
        for member in self.newest():
            for content_id in member.lacks():
                name = f"node {member.disk.node} of {member.chain}"
                self._check_file(content_id, member.kept[content_id], name)

    def _check_file(self, content_id: str, held: Held, name: str) -> None:
        file = file_of(held.path)
        assert file is not None
        content = self.objects.found.get(file.part(0))
        assert content is not None, f"{name} needs {held.path}, which is gone"
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
        for _ in range(60):
            ends = sorted(self.newest(), key=lambda each: (each.is_live, each.files.index))
            leaders = {each.chain: each for each in ends}
            for member in leaders.values():
                member.step(self.rng)
            for member in ends:
                if member.is_live:
                    member.speak([])
                else:
                    self._join(member)
        for _ in range(4):
            self._sweeps[0].look(lambda log_id: False)
        return list(leaders.values())


class _Copy(MemoryObjects):
    def __init__(self, found: dict[str, bytes]) -> None:
        super().__init__()
        self.found = dict(found)
