"""A limit on the bytes a second of a backup or a restore."""

import asyncio
import time


class Pace:
    """Waits so that bytes come at most at a rate; None: without waiting."""

    def __init__(self, bytes_per_s: int | None) -> None:
        self._bytes_per_s = bytes_per_s
        self._free_at = time.monotonic()

    async def passed(self, count: int) -> None:
        """Wait until this number of further bytes fits the rate."""
        if self._bytes_per_s is None:
            return
        now = time.monotonic()
        self._free_at = max(self._free_at, now) + count / self._bytes_per_s
        await asyncio.sleep(max(0.0, self._free_at - now))
