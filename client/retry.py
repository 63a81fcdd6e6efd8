"""The policy of retries: whether, when and where to try a failed attempt again. No I/O.

The rules are those of docs/design/ranges.md#routing.

`Attempts` belongs to one call. It takes each failure and returns a `Next`, or raises the final
error. The outcome of the call is the worst of all attempts: once an attempt may have been applied,
a later refusal does not make the call `not_applied` (x18).
"""

import random
from typing import Final, NamedTuple

from .protocol import limits
from .protocol.errors import (
    GenerationMismatch,
    LognodeError,
    NotLeader,
    OperationInProgress,
    Outcome,
    OutOfOrder,
    Overloaded,
    RangeNotFound,
    Routing,
    Sealed,
    Timeout,
    Unavailable,
)

sealed_backoff_first_s: Final = 0.01
sealed_backoff_max_s: Final = 0.2
retry_after_max_s: Final = 5.0
attempt_first_s: Final = 2.0
"""How long the first attempt waits for its answer; the timeout doubles with each further
attempt."""
hints_followed_max: Final = 2
"""Leader hints followed without a pause: two nodes that name each other must not cause a busy
loop."""
refresh_every: Final = 3


_RETRIED: Final = (Routing, Overloaded, RangeNotFound, Unavailable, Timeout, OperationInProgress)


class ClientClosed(Unavailable):
    """The client was closed during the call: no attempt will succeed."""

    retryable = False


class Next(NamedTuple):
    """The steps before the next attempt."""

    delay_s: float = 0.0
    refresh: bool = False
    """Ask for newer descriptors."""
    drop: bool = False
    """Forget the descriptor first: the node does not know the range at all."""
    elsewhere: bool = False
    """Try another member: this member did not answer or has no hint."""


class Attempts:
    """The state of one call's attempts. `deadline` and `now` use one clock, in seconds."""

    def __init__(
        self, what: str, deadline: float, *, writes: bool, rng: random.Random | None = None
    ) -> None:
        self.what = what
        self.deadline = deadline
        self.writes = writes
        """Whether the call writes. A read is never applied, whatever the outcome of its
        attempts."""
        self.outcome: Outcome = "not_applied"
        self.failures = 0
        self.last: LognodeError | None = None
        self._answer: LognodeError | None = None
        """The last answer, unless it named a leader: it says more than the silence of others."""
        self._hints = 0
        self._backoff_s = limits.client_retry_backoff_first_s
        self._sealed_s = sealed_backoff_first_s
        self._rng = rng

    def attempt_deadline(self, now: float) -> float:
        """Return the time by which the next attempt must be answered."""
        return min(self.deadline, now + attempt_first_s * (1 << min(self.failures, 4)))

    def failed(
        self, error: LognodeError, now: float, *, news: bool = False, took_s: float = 0.0
    ) -> Next:
        """Decide on the failure of one attempt; raise the call's error when the call has ended.

        `news`: descriptors newer than those of the attempt are known by now. `took_s`: how long the
        attempt took, where another attempt at any node takes as long while there is no leader.
        """
        if self.writes and error.outcome == "unknown":
            self.outcome = "unknown"
        self.last = error
        if error.is_answer:
            self._answer = error if error.fields.get("hint") is None else None
        if isinstance(error, ClientClosed) or not isinstance(error, _RETRIED):
            raise self.settle(error)
        self.failures += 1
        step = self._next(error, news)
        if now + step.delay_s + self._next_takes_s(error, took_s) >= self.deadline:
            raise self.expired()
        return step

    def _next_takes_s(self, error: LognodeError, took_s: float) -> float:
        """Return how long another attempt would take, as far as that matters.

        A node that looked for a leader in vain has said that it changed nothing. Another attempt
        that is cut off by the deadline would make the outcome unknown."""
        is_sure = self.writes and self.outcome == "not_applied" and error.is_answer
        return min(took_s, attempt_first_s) if is_sure and isinstance(error, Unavailable) else 0.0

    def settle(self, error: LognodeError) -> LognodeError:
        """Return the error with the outcome of the whole call."""
        if self.outcome == "unknown" and error.outcome == "not_applied":
            error.outcome = "unknown"
        elif not self.writes:
            error.outcome = "not_applied"
        return error

    def expired(self) -> LognodeError:
        """Return the error of a call that is out of time, with the last failure if known."""
        if self.last is None:
            return Timeout(f"{self.what}: the deadline has passed", outcome=self.outcome)
        told = self.last
        if not told.is_answer and self._answer is not None:
            told = self._answer
        if isinstance(told, Unavailable) and self.outcome == "not_applied":
            return self.settle(told)
        return Timeout(
            f"{self.what}: the deadline has passed after {self.failures} attempts; the last "
            f"error: {told}",
            outcome=self.outcome,
        )

    def _next(self, error: LognodeError, news: bool) -> Next:
        often = self.failures % refresh_every == 0
        if isinstance(error, NotLeader):
            hint = error.fields.get("hint")
            if hint is not None and self._hints < hints_followed_max:
                self._hints += 1
                return Next()
            self._hints = 0
            return Next(self._pause(), refresh=often, elsewhere=hint is None)
        if news:
            return Next()
        if isinstance(error, GenerationMismatch):
            return Next(self._pause(), refresh=often, elsewhere=True)
        if isinstance(error, Sealed):
            delay, self._sealed_s = self._sealed_s, min(self._sealed_s * 2, sealed_backoff_max_s)
            return Next(delay, refresh=True)
        if isinstance(error, RangeNotFound):
            delay = 0.0 if self.failures == 1 else self._pause()
            return Next(delay, refresh=True, drop=True)
        if isinstance(error, Overloaded):
            told = error.fields.get("retry_after")
            if not isinstance(told, int | float) or not told >= 0:  # NaN is not
                told = self._pause()
            return Next(float(min(told, retry_after_max_s)))
        if isinstance(error, OutOfOrder):
            return Next(0.0 if self.failures == 1 else self._pause())
        if error.fields.get("reason") == "behind":
            return Next(0.0 if self.failures == 1 else self._pause(), elsewhere=True)
        # No answer: the leader may be gone, and other members may know the new leader.
        delay = 0.0 if self.failures == 1 else self._pause()
        return Next(delay, refresh=True, elsewhere=True)

    def _pause(self) -> float:
        delay = self._backoff_s
        self._backoff_s = min(self._backoff_s * 2, limits.client_retry_backoff_max_s)
        if self._rng is None:
            self._rng = random.Random()  # most calls never need it, and its seed costs more
        # Jitter keeps the clients of a lost leader from retrying in step.
        return delay * self._rng.uniform(0.75, 1.25)
