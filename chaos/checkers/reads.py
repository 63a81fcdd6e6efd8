"""Whether reads show all that they must.

`stale-read`: a linearizable read does not show what was known before it began. `session-went-back`:
a prefix read shows less of a key than its process had read before.
"""

from collections.abc import Iterator

from ..verdict import Anomaly
from .account import Account


def reads(account: Account) -> Iterator[Anomaly]:
    """Check both rules over all reads that show a key to its end."""
    sessions: dict[tuple[int, str], int] = {}
    for view in account.views:
        one = view.operation
        if one.f in ("follow", "take") or (one.f == "final" and one.node is not None):
            continue
        if view.whole and view.linearizable:
            floor = account.floor(view.key, one.began)
            if view.last < floor:
                yield Anomaly(
                    "stale-read",
                    f"a linearizable {one.f} of process {one.process} shows key {view.key} up to"
                    f" seq {view.last}, though seq {floor} was known before it began",
                    view.key, (one.index,), "S7",
                )  # fmt: skip
        session = one.process, view.key
        seen = sessions.get(session, 0)
        if view.whole and not view.linearizable and view.last < seen:
            yield Anomaly(
                "session-went-back",
                f"a prefix {one.f} of process {one.process} shows key {view.key} up to seq"
                f" {view.last}, though the process had seen seq {seen}",
                view.key, (one.index,), "S7",
            )  # fmt: skip
        if view.entries:
            sessions[session] = max(seen, view.last)
