"""Opens segment files, and reads places of these from the disk, in a thread.

See `SegmentStore.on_hand`.
"""

import asyncio
from functools import partial

from ...client.protocol.errors import CorruptData
from ...statemachine.range_state import RangeState
from ...statemachine.segments import SegmentStore
from ...statemachine.turn_limits import NotPrepared, Turns


async def prepare(state: RangeState, missing: NotPrepared, turns: Turns) -> None:
    """Make ready what a read of these turns missed.

    Raises CorruptData, unless a merge has replaced the file meanwhile: the file is then not needed.
    Raises Unavailable for a file in a tier that gives no answer.
    """
    info = next((row for row in state.manifest if row.content_id == missing.content_id), None)
    try:
        call = partial(state.store.prepare, missing, turns)
        run = state.store.run_elsewhere
        if run is None or state.store.is_listed(missing.content_id):
            run = asyncio.to_thread
        prepared = await run(call)
        if prepared is not None:
            if info is not None:
                prepared.segment.check_row(info)
            state.store.admit(prepared)
    except CorruptData:
        if any(row.content_id == missing.content_id for row in state.manifest):
            raise
    if missing.place is not None:
        turns.fetched.setdefault(missing.place, None)


async def open_ahead(store: SegmentStore, content_id: str) -> None:
    """Open a file that a manifest is about to name, so that its first read does not wait.

    Raises CorruptData.
    """
    prepared = await asyncio.to_thread(store.prepare, NotPrepared(content_id))
    if prepared is not None:
        store.admit(prepared)
