"""Which names survive a power cut: any choice that there could have been."""

import itertools
import random
from pathlib import PurePosixPath

import pytest

from lognode.chaos.powerfs.names import Change, Names


def apply(names: set[str], change: Change) -> set[str]:
    """Of the paths that there are; those of directories end with a slash."""
    tail = "/" if change.directory else ""
    if change.old is not None:
        assert change.old + tail in names
        assert not any(name.startswith(change.old + "/") and tail != name[-1:] for name in names)
        names = names - {change.old + tail}
    if change.new is not None:
        above = PurePosixPath(change.new).parent
        assert str(above) == "/" or f"{above}/" in names
        names = names | {change.new + tail}
    return names


def undone(names: set[str], change: Change) -> set[str]:
    back = Change(change.new, change.old, directory=change.directory)
    names = apply(names, back)
    return names | {str(change.new)} if change.spare and change.old and change.new else names


HISTORY = [
    Change(None, "/wal", directory=True), Change(None, "/wal/1"), Change("/wal/1", "/wal/2"),
    Change(None, "/tmp", directory=True), Change(None, "/tmp/a"),
    Change(None, "/files", directory=True), Change("/tmp/a", "/files/a"),
    Change(None, "/tmp/b"), Change("/tmp/b", "/files/a", "spare"),
    Change("/wal/2", None, "spare"), Change(None, "/wal/2"),
]  # fmt: skip


def done(seed: int, synced: dict[int, str]) -> tuple[set[str], set[str], list[Change]]:
    """All changes, with an fsync of a directory after some; what there was and what is left."""
    names, there = Names(), set[str]()
    for at, change in enumerate(HISTORY):
        there = apply(there, change)
        names.changed(change)
        if at in synced:
            names.synced(synced[at], names.now())
    left = set(there)
    lost = names.lose(random.Random(seed))
    for change in lost:
        left = undone(left, change)
    assert not len(names)
    return there, left, lost


def test_every_choice_is_one_that_can_be() -> None:
    seen = {frozenset(done(seed, {})[1]) for seed in range(300)}
    assert frozenset() in seen
    assert frozenset(done(0, {})[0]) in seen
    assert len(seen) > 10
    for left in seen:
        for name in left:
            above = PurePosixPath(name).parent
            assert str(above) == "/" or f"{above}/" in left, name


@pytest.mark.parametrize(
    ("synced", "stays"),
    [({1: "/wal"}, {"/wal/"}), ({6: "/files"}, {"/tmp/", "/files/", "/files/a"}),
     ({6: "/tmp"}, {"/tmp/", "/files/", "/files/a"}), ({10: "/wal"}, {"/wal/", "/wal/2"}),
     ({10: "/"}, {"/wal/", "/tmp/", "/files/"}), ({0: "/", 9: "/wal"}, {"/wal/"})],
)  # fmt: skip
def test_names_in_a_synced_directory_stay_with_their_parents(
    synced: dict[int, str], stays: set[str]
) -> None:
    for seed in range(100):
        _, left, _ = done(seed, synced)
        assert stays <= left


def test_an_fsync_covers_only_what_was_before_it_and_in_its_directory() -> None:
    names = Names()
    first, second, other = Change(None, "/a/1"), Change(None, "/a/2"), Change(None, "/b/1")
    names.changed(first)
    names.changed(other)
    before = names.now()
    names.changed(second)
    assert names.synced("/a", before) == [first]
    assert names.synced("/a/1", names.now()) == []
    lost = list(itertools.chain(*(_lose([other, second], seed) for seed in range(20))))
    assert {change.new for change in lost} == {"/b/1", "/a/2"}
    assert list(names.now()) == [other, second]


def _lose(changes: list[Change], seed: int) -> list[Change]:
    names = Names()
    for change in changes:
        names.changed(change)
    return names.lose(random.Random(seed))


def test_lost_changes_are_undone_from_the_last_to_the_first() -> None:
    for seed in range(50):
        _, _, lost = done(seed, {})
        assert [HISTORY.index(change) for change in lost] == sorted(
            (HISTORY.index(change) for change in lost), reverse=True
        )
