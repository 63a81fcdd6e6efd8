"""Which nodes replicas are to leave, and when: of what the metadata says and who was heard.

A node that is DRAINING hands its leads over first: then each range is without a leader for an
election only, and moves with a leader that stays. A node that is DEAD may come back: its replicas
are given to others only when it has been DEAD for `repair_after_s`, by the clock of the
controller's leader, which starts anew with every leader (x2.23). One that is REMOVED
never comes back.
"""

from .facts import Facts
from .metadata import Metadata
from .replacing import Leave

DEAD_AFTER_S = 10.0
"""A node not heard from for this long is DEAD until it is heard again
(docs/design/ranges.md#joining)."""
LEADS_FIRST_S = 5.0
"""So long a draining node may take for its leads before replicas leave it all the same: under load
a follower may never catch up, and a move ends the lead as well."""
NEVER = 0.0
"""As `repair_after_s`: the dead keep their replicas."""


def leaving(
    metadata: Metadata,
    facts: Facts,
    now: float,
    leads_for_s: float,
    repair_after_s: float,
    dead_after_s: float = DEAD_AFTER_S,
) -> dict[int, Leave]:
    """The nodes that replicas are to leave now, and why."""
    found = {}
    draining = {node.node_id for node in metadata.nodes.values() if node.state == "DRAINING"}
    facts.follow_drains(draining, now)
    for number in draining:
        waited_s = now - facts.drains[number]
        if facts.leads_left.get(number) == 0 or waited_s >= LEADS_FIRST_S:
            found[number] = Leave("move", f"node {number} is draining")
    for node in metadata.nodes.values():
        if node.state == "REMOVED":
            found[node.node_id] = Leave("repair", f"node {node.node_id} was removed")
        elif node.state == "DEAD" and repair_after_s != NEVER:
            heard_at = facts.heard.get(node.node_id, float("-inf"))
            silent_s = min(leads_for_s, now - heard_at)
            if silent_s >= dead_after_s + repair_after_s:
                reason = f"node {node.node_id} has been DEAD for {repair_after_s:g} s"
                found[node.node_id] = Leave("repair", reason)
    return found
