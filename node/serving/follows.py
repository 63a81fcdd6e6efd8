"""Limit the follows of a node and their keys: each holds memory for as long as it lasts."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from ...client.protocol import limits
from ...client.protocol.errors import Overloaded
from ...client.protocol.limit_checks import check_limit

RETRY_AFTER_S = 1.0


class Follows:
    """Counts the follows of each connection, and of the node."""

    def __init__(self) -> None:
        self.count = 0
        self.keys = 0
        self._of_connection: Counter[object] = Counter()

    @contextmanager
    def one_more(self, connection: object, keys: int) -> Iterator[None]:
        """Count a follow of `keys` keys for as long as the block lasts.

        Raises LimitExceeded if the connection has too many, Overloaded if the node has.
        """
        self._check(connection, keys)
        self.count += 1
        self.keys += keys
        self._of_connection[connection] += 1
        try:
            yield
        finally:
            self.count -= 1
            self.keys -= keys
            self._of_connection[connection] -= 1
            if not self._of_connection[connection]:
                del self._of_connection[connection]

    def _check(self, connection: object, keys: int) -> None:
        check_limit(
            "follow_keys_max", limits.follow_keys_max, keys, f"a follow has {keys} keys",
            "Follow a prefix, or several groups of keys",
        )  # fmt: skip
        own = self._of_connection.get(connection, 0) + 1
        check_limit(
            "follows_per_connection_max", limits.follows_per_connection_max, own,
            f"the connection has {own} follows",
            "Follow several keys together, or use another client",
        )  # fmt: skip
        for what, value, allowed in (
            ("follows", self.count + 1, limits.follows_max),
            ("followed keys", self.keys + keys, limits.followed_keys_max),
        ):
            if value > allowed:
                raise Overloaded(
                    f"this node would have {value} {what}; at most {allowed} are allowed. "
                    "End other follows, or spread the ranges over more nodes",
                    retry_after=RETRY_AFTER_S,
                    reason="follows",
                )
