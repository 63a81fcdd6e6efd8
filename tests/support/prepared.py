"""What a node does in a thread and then on its loop when a read has raised NotPrepared."""

from lognode.statemachine.segments import SegmentStore
from lognode.statemachine.turn_limits import NotPrepared, Turns


def make_ready(store: SegmentStore, missing: NotPrepared | str, turns: Turns | None = None) -> None:
    """Open the file, or read the place that was missing. A text is the content id of a file."""
    if isinstance(missing, str):
        missing = NotPrepared(missing)
    prepared = store.prepare(missing)
    if prepared is not None:
        store.admit(prepared)
    elif turns is not None and missing.place is not None:
        turns.fetched.add(missing.place)
