"""A node that kills itself with -9 at a step on its disk: see `test_tier_only_deaths.py`.

The arguments are a step, `before` or `after`, how often the step is done, and those of the node.
"""

import os
import signal
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from lognode.node.directory import meta_keys
from lognode.node.main import main
from lognode.node.tier import kept_pages
from lognode.node.tier.far_files import FarFiles
from lognode.statemachine.meta import LmdbMeta
from lognode.statemachine.segments import SegmentStore

STEPS: Final[Mapping[str, tuple[Any, str]]] = {
    "store place": (LmdbMeta, "commit"),
    "write pages": (kept_pages, "write"),
    "keep pages": (FarFiles, "_write_pages"),
    "delete file": (SegmentStore, "remove"),
    "forget pages": (FarFiles, "_forget"),
    "fetch file": (FarFiles, "_fetch"),
    "bring back": (SegmentStore, "add"),
}
"""What is done at each step."""


def is_meant(step: str, arguments: tuple[Any, ...]) -> bool:
    """Whether a call is the step: meta has many transactions, and files come for many reasons."""
    if step == "store place":
        return _has_places(*arguments[1:])
    return step != "bring back" or arguments[1].name.startswith("tier-")


def _has_places(puts: Mapping[str, Any], deletes: Iterable[str] = (), *_more: Any) -> bool:
    return any(key.startswith(meta_keys.KEPT) for key in (*puts, *deletes))


def die_at(step: str, when: str, occurrence: int) -> None:
    """Let this process die at a step."""
    owner, name = STEPS[step]
    real: Callable[..., Any] = getattr(owner, name)
    left = occurrence

    def wrapped(*arguments: Any, **named: Any) -> Any:
        nonlocal left
        if is_meant(step, arguments):
            left -= 1
            if left == 0 and when == "before":
                os.kill(os.getpid(), signal.SIGKILL)
        found = real(*arguments, **named)
        if left == 0 and is_meant(step, arguments):
            os.kill(os.getpid(), signal.SIGKILL)
        return found

    setattr(owner, name, wrapped)


if __name__ == "__main__":
    _, step, when, occurrence, *rest = sys.argv
    die_at(step, when, int(occurrence))
    sys.exit(main(rest))
