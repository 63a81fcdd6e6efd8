"""Why an operation was planned, as the metadata keep the reason: a text of the command, and causes.

A command may carry a text, which its proposer wrote. What apply itself adds is a cause: a code and
its values. All members of the controller must come to the same records, whatever version they run,
and versions word a cause differently. So the words are made where people read them
(`node/serving/words.py`). The codes and their values are a format: a code never gets another
meaning, and a new code needs a new feature level.

Below feature level 3 apply wrote texts, and a member of any version writes the same bytes there.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple, Self

from ..client.protocol.errors import InvalidArgument
from ..client.protocol.levels import CAUSES_FROM
from .model import Cause
from .spans import is_alike, printable

MOVED: Final = 1
"""An operator moves the range: from this node, to this node."""
SPLIT: Final = 2
"""An operator splits the range: at this key."""
RECOVERED: Final = 3
"""An operator recovers the range from a single member: this node."""
MERGED: Final = 4
"""An operator merges the range: with this range, at this key."""
GIVEN_UP: Final = 5
"""The operation on several ranges was given up: not all were sealed and held in time."""
MEMBERS_KEPT: Final = 6
"""The members of the generation before go on: the planned members were not ready in time."""

VALUES: Final[Mapping[int, tuple[type, ...]]] = {
    MOVED: (int, int),
    SPLIT: (bytes,),
    RECOVERED: (int,),
    MERGED: (int, bytes),
    GIVEN_UP: (),
    MEMBERS_KEPT: (),
}
"""The types of each cause's values."""
_TEXTS: Final[Mapping[int, str]] = {
    MOVED: "an operator moves it from node {} to node {}",
    SPLIT: "an operator splits it at key {}",
    RECOVERED: "an operator goes on from node {} alone",
    MERGED: "an operator merges it with range {} at key {}",
    GIVEN_UP: "; given up: not both were sealed and held in time",
    MEMBERS_KEPT: "; the old members go on: the new ones were not ready in time",
}
"""What apply writes below level 3. These texts never change, see the module."""


class Reason(NamedTuple):
    """The reason of an operation."""

    text: str = ""
    """What the command said, and below level 3 what apply added; empty for an operator's wish."""
    causes: tuple[Cause, ...] = ()
    """What apply added, oldest first."""

    def then(self, level: int, cause: Cause) -> Self:
        """Return the reason with a further cause, as the feature level of the metadata has it."""
        if level >= CAUSES_FROM:
            return self._replace(causes=(*self.causes, cause))
        shown = [printable(each) if isinstance(each, bytes) else each for each in cause.values]
        return self._replace(text=self.text + _TEXTS[cause.code].format(*shown))


def check_key(level: int, key: bytes) -> None:
    """Raise InvalidArgument for a key that members could write differently into their records.

    Only below level 3 apply writes keys into texts, and members of earlier versions ask their
    Python which keys are printable. The leader asks this before it proposes a split or a merge.
    """
    if level < CAUSES_FROM and not is_alike(key):
        raise InvalidArgument(
            f"key 0x{key.hex()} has a character that Unicode 14 lacks, and the cluster is at "
            f"feature level {level}; choose another key, or raise the level: "
            "`lognode cluster finalize`", what="at",
        )  # fmt: skip


def are_causes(told: Any) -> bool:
    """Whether the value is a list of causes. A later version may have further codes."""
    return type(told) is list and all(map(_is_cause, told))


def _is_cause(told: Any) -> bool:
    if type(told) is not list or len(told) != 2 or type(told[0]) is not int:
        return False
    code, values = told
    if type(values) is not list:
        return False
    types = tuple(map(type, values))
    return types == VALUES[code] if code in VALUES else set(types) <= {int, bytes}
