"""A call of an event loop at a time that stays known.

asyncio's handle of such a call tells its time (`when`). The handle of uvloop does not where that
time has passed already, and programs may run the SDK in uvloop.
"""

import asyncio
from collections.abc import Callable
from typing import Any, NamedTuple


class Timer(NamedTuple):
    """A call that is due at the loop time `when`, in seconds."""

    when: float
    handle: asyncio.Handle

    @classmethod
    def at(
        cls, loop: asyncio.AbstractEventLoop, when: float, call: Callable[..., None], *args: Any
    ) -> "Timer":
        """Have the loop make the call at that time, or in its next turn if that time has passed."""
        return cls(when, loop.call_at(when, call, *args))

    def cancel(self) -> None:
        """Make the call no more, if the loop has not made it yet."""
        self.handle.cancel()
