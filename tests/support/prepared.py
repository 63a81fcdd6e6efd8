"""Segment files of a store in tests: opened as a node opens them, and forgotten."""

from lognode.statemachine.segments import SegmentStore
from lognode.statemachine.turn_limits import NotPrepared, Turns


def make_ready(store: SegmentStore, missing: NotPrepared | str, turns: Turns | None = None) -> None:
    """Do what a node does in a thread and then on its loop when a read has raised NotPrepared.

    A text is the content id of a file to open.
    """
    if isinstance(missing, str):
        missing = NotPrepared(missing)
    prepared = store.prepare(missing, turns)
    if prepared is not None:
        store.admit(prepared)
    elif turns is not None and missing.place is not None:
        turns.fetched.setdefault(missing.place, None)


def forget_read(store: SegmentStore) -> None:
    """Drop what the store has in memory of open files: it hides what the disk says."""
    store._blocks.__init__(0)  # type: ignore[misc]
    for segment in store._open.values():
        segment._pages._leaves.clear()
