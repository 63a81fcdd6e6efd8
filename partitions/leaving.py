"""Which nodes replicas have to leave, and when: derived from the metadata and the heartbeats.

A DRAINING node hands its leads over first: each range is then without a leader for one election
only, and moves while its leader stays. A DEAD node may come back: its replicas go to other nodes
only when it has been DEAD for `repair_after_s`, by the clock of the controller's leader. This clock
starts anew with every leader (x2.23). A REMOVED node never comes back.
"""

from .facts import Facts
from .metadata import Metadata
from .replacing import Leave

DEAD_AFTER_S = 10.0
"""A node that is silent for this long is DEAD until it is heard again
(docs/design/ranges.md#joining)."""
LEADS_FIRST_S = 5.0
"""The time that a draining node has for handing over its leads before replicas leave it anyway:
under load a follower may never catch up, and a move ends the lead as well."""
NEVER = 0.0
"""The value of `repair_after_s` with which dead nodes keep their replicas."""


def leaving(
    metadata: Metadata,
    facts: Facts,
    now: float,
    leads_for_s: float,
    repair_after_s: float,
    dead_after_s: float = DEAD_AFTER_S,
) -> dict[int, Leave]:
    """Return the nodes that replicas have to leave now, each with the reason."""
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
