"""Making a segment file ready to be opened, by a thread (see `SegmentStore.prepare`)."""

import asyncio
import time

from ..client.errors import CorruptData
from ..statemachine.range_state import RangeState

_BREATH_S = 0.0002


async def prepare(state: RangeState, content_id: str) -> None:
    """Hash the file if need be, and look at its pages, off the loop. Raises CorruptData, unless a
    merge has taken the file away meanwhile: then it is not needed any more."""
    try:
        await asyncio.to_thread(state.store.prepare, content_id, _breathe)
    except CorruptData:
        if any(info.content_id == content_id for info in state.manifest):
            raise


def _breathe() -> None:
    """Python that does not end would keep the interpreter from the loop for 5 ms at a time."""
    time.sleep(_BREATH_S)
