"""What the leader of a range does next for the tier: functions of its base and of the head.

The docstring of the folder has the contract. No I/O.
"""

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from ...statemachine.spans import Span
from .manifest import Held, LogFacts, Manifest
from .names import Chain


@dataclass(frozen=True, slots=True)
class Own:
    """What a leader has: the files of its durable base, by content id with their sizes, in order.

    `applied`: index and term of the base. `parents`: the chains of the generations before.
    `members`: the nodes of the generation. `absent`: where the files are that only the tier has.
    """

    chain: Chain
    span: Span
    log: LogFacts
    applied: tuple[int, int]
    files: Mapping[str, int]
    parents: tuple[Chain, ...] = ()
    members: tuple[int, ...] = ()
    absent: Mapping[str, Held] = field(default_factory=dict)


class Begin(NamedTuple):
    """Close the chains of the parents, and publish the first manifest."""


class Upload(NamedTuple):
    """Upload this file, and publish that the tier has the file."""

    content_id: str
    size: int


class Adopt(NamedTuple):
    """Publish that the tier has this file: a chain of an earlier generation keeps the file for the
    leader, which has no copy of its own."""

    content_id: str
    held: Held


class Publish(NamedTuple):
    """Publish a manifest with the leader's base."""


class Restate(NamedTuple):
    """Publish the head's base again, with the present facts of the log."""


class Wait(NamedTuple):
    """Do nothing until the leader's base is as far as the head's."""


class Done(NamedTuple):
    """The head has all of the leader's base."""


class Ended(NamedTuple):
    """The chain is closed: a later generation has begun."""


Step = Begin | Upload | Adopt | Publish | Restate | Wait | Done | Ended


def next_step(own: Own, head: Manifest | None) -> Step:
    """Return what to do next; `head`: the head of the chain, None without manifests."""
    if head is None:
        return Begin()
    if head.closed:
        return Ended()
    if head.is_whole:
        behind = own.applied[0] < head.applied[0]
        same = own.applied[0] == head.applied[0]
        # At one index the replica with fewer files has merged more; the others follow by merging.
        if behind or (same and len(own.files) > len(head.files)):
            return Wait() if head.log == own.log else Restate()
        if same and set(own.files) == set(head.files):
            return Done() if head.log == own.log else Restate()
    for content_id, size in own.files.items():
        if content_id not in head.held:
            absent = own.absent.get(content_id)
            return Upload(content_id, size) if absent is None else Adopt(content_id, absent)
    return Publish()


def waiting(own: Own, held: Container[str]) -> tuple[int, int]:
    """Return the local files of the leader's base that the tier does not hold, and their bytes."""
    sizes = [
        size for content_id, size in own.files.items()
        if content_id not in held and content_id not in own.absent
    ]  # fmt: skip
    return len(sizes), sum(sizes)


def first(own: Own, closed: Iterable[Manifest]) -> Manifest:
    """Return the first manifest of a chain: it names the files of closed chains that it needs."""
    known = {name: held for parent in closed for name, held in parent.held.items()}
    held = {name: known[name] for name in own.files if name in known}
    return Manifest(own.chain, 1, own.log, own.span, held, members=own.members)


def next_of(head: Manifest) -> Manifest:
    """Return the manifest after the head, which says the same."""
    return replace(head, number=head.number + 1)


def with_file(own: Own, head: Manifest, content_id: str, stored: Held) -> Manifest:
    """Return the manifest after the upload of a file; the base stays that of the head."""
    known = {**head.held, content_id: stored}
    needed = dict.fromkeys((*head.files, *own.files, *head.claimed))
    held = {name: known[name] for name in needed if name in known}
    return replace(next_of(head), span=own.span, held=held, members=own.members)


def is_complete(own: Own, following: Manifest) -> bool:
    """Whether the manifest holds all files of the leader's base."""
    return own.files.keys() <= following.held.keys()


def based(own: Own, following: Manifest, base: bytes) -> Manifest:
    """Return the manifest with the leader's base, whose files the manifest holds.

    Files that a node claims stay, whatever the leader has.
    """
    needed = dict.fromkeys((*own.files, *following.claimed))
    held = {name: following.held[name] for name in needed}
    return replace(
        following, log=own.log, span=own.span, held=held, files=tuple(own.files),
        applied=own.applied, base=base, members=own.members,
    )  # fmt: skip


def closing(own: Own, chain: Chain, head: Manifest | None) -> Manifest:
    """Return the last manifest of a parent's chain, which has what its head has."""
    if head is None:
        return Manifest(chain, 1, own.log, own.span, {}, closed=True)
    return replace(head, number=head.number + 1, closed=True)
