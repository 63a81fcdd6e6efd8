"""Tells followers that this member is cut off and may get no more entries.

A member that is cut off from the others applies nothing. A follow there would wait in silence while
the others acknowledge entries. While there are followers, a timer checks whether the member is
still in contact, at no other cost. The timer fires when the contact would end if nothing were
heard. A timer that fires late shows that the node itself was paused: messages of the others may
still be unread, so the timer checks again.
"""

import asyncio
from collections.abc import Callable
from typing import Final, Protocol

from ...client.timer import Timer
from ..runtime.unexpected import OnBroken, guarded

_LATE_S: Final = 0.1
_AGAIN_S: Final = 0.1
_MARGIN_S: Final = 0.02


class Contact(Protocol):
    """The methods of a `raft.group.Group` that the watch needs."""

    @property
    def in_contact(self) -> bool: ...

    @property
    def contact_age_s(self) -> float: ...


class ContactWatch:
    """The watch of one replica. All calls on the thread of the event loop."""

    def __init__(
        self,
        contact: Contact,
        *,
        timeout_s: float,
        on_lost: Callable[[], None],
        on_broken: OnBroken,
    ) -> None:
        """Make a watch that does not run yet.

        `on_lost` is called once after each `begin`, when the contact is older than `timeout_s`
        seconds. `on_broken` is called after a bug.
        """
        self._contact = contact
        self._timeout_s = timeout_s
        self._on_lost = on_lost
        self._on_broken = on_broken
        self._loop = asyncio.get_running_loop()
        self._timer: Timer | None = None

    def begin(self) -> None:
        """Watch until the contact is lost or `end` is called.

        Do nothing if the watch runs already.
        """
        if self._timer is None:
            self._arm(self._left_s())

    def end(self) -> None:
        """Stop watching: no follower is left."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _left_s(self) -> float:
        return max(0.0, self._timeout_s - self._contact.contact_age_s) + _MARGIN_S

    def _arm(self, in_s: float) -> None:
        look = guarded(self._look_now, self._on_broken)
        self._timer = Timer.at(self._loop, self._loop.time() + in_s, look)

    def _look_now(self) -> None:
        timer, self._timer = self._timer, None
        is_late = timer is not None and self._loop.time() - timer.when > _LATE_S
        if self._contact.in_contact:
            self._arm(self._left_s())
        elif is_late:
            self._arm(_AGAIN_S)
        else:
            self._on_lost()
