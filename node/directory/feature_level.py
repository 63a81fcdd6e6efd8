"""The feature level in the data directory: a program that does not know the level does not start.

The level of the metadata is in images too, but an image says the level only to programs that know
levels. Versions from before them know the row `refused`: they end with its text at their start,
before they vote or answer, and add their own advice for refused directories. So each transaction
that stores metadata above the first level also stores these rows.
"""

from collections.abc import Callable
from typing import Any

from ...client.protocol.errors import Unsupported
from ...client.protocol.levels import LEVEL_MIN, missing
from ...statemachine.meta import MetaStore
from . import meta_keys


def check_level(level: int) -> None:
    """Raise Unsupported where this program does not know the feature level of the cluster."""
    why = missing(level)
    if why is not None:
        raise Unsupported(f"this node does not start: {why}")


def refused(get: Callable[[str], Any]) -> Any:
    """Return why the cluster has refused the directory; None: it has not.

    `get` returns a row of meta, or None. Raises Unsupported for a directory at a feature level that
    this program does not know.
    """
    level, reason = get(meta_keys.LEVEL), get(meta_keys.REFUSED)
    if level is not None:
        check_level(level)
        if reason == _for_older(level):
            return None
    return reason


def rows(get: Callable[[str], Any], level: int) -> dict[str, Any]:
    """Return the rows to store for a level; none for the first one, or where they are stored.

    `get` returns a row of meta, or None: call this where nothing else writes to meta before the
    rows are stored. A refusal by the cluster stays.
    """
    if level <= LEVEL_MIN or get(meta_keys.LEVEL) == level:
        return {}
    found: dict[str, Any] = {meta_keys.LEVEL: level}
    if refused(get) is None:
        found[meta_keys.REFUSED] = _for_older(level)
    return found


def note(meta: MetaStore, level: int) -> None:
    """Store a level, unless it is stored."""
    found = rows(meta.get, level)
    if found:
        meta.commit(found)


def _for_older(level: int) -> str:
    return (
        f"the cluster is at feature level {level}, which this earlier version of lognode does not "
        "know: start the version that ran here last, and nothing is lost. Only where the "
        "directory itself is lost"
    )
