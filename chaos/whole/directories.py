"""`lognode verify` over the directories of killed nodes: whatever a fault left must be sound."""

from ...node.verify.verify import verify
from ..verdict import Anomaly
from .nodes import Machines


async def kill_and_verify(machines: Machines) -> list[Anomaly]:
    """Kill all nodes, and return what is wrong with their directories."""
    found = []
    for machine in machines:
        if machine.is_lost:
            continue
        await machine.kill()
        for check in verify(machine.data):
            if check.wrong:
                told = f"node {machine.number}, {check.name}: {'; '.join(check.wrong[:3])}"
                found.append(Anomaly("verify", told, promise="S12"))
    return found
