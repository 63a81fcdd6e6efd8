"""Makes a segment file ready to be opened, in a thread (see `SegmentStore.prepare`)."""

import asyncio
import time

from ...client.protocol.errors import CorruptData
from ...statemachine.range_state import RangeState
from ...statemachine.segments import SegmentStore

_BREATH_S = 0.0002


async def prepare(state: RangeState, content_id: str) -> None:
    """Hash the file if needed and look at its pages, in a thread.

    Raises CorruptData, unless a merge has replaced the file meanwhile: the file is then not needed.
    """
    try:
        await _prepare(state.store, content_id)
    except CorruptData:
        if any(info.content_id == content_id for info in state.manifest):
            raise


async def open_ahead(store: SegmentStore, content_id: str) -> None:
    """Open a file that a manifest is about to name, so that its first read does not wait.

    Raises CorruptData.
    """
    await _prepare(store, content_id)
    store.segment(content_id)


async def _prepare(store: SegmentStore, content_id: str) -> None:
    await asyncio.to_thread(store.prepare, content_id, _breathe)


def _breathe() -> None:
    """Sleep: Python without pauses keeps the interpreter from the loop for 5 ms at a time."""
    time.sleep(_BREATH_S)
