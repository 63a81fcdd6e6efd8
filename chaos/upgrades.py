"""Nodes that change their build in a running test, and the end of the upgrade."""

import asyncio

from ..client.client import AsyncClient
from ..client.protocol.errors import LognodeError, Unavailable
from .nodes import Nodes

_FINALIZE_S = 60.0
_RETRY_S = 1.0


async def change_build(nodes: Nodes, number: int) -> str:
    """Stop a node in order, and start it with the other build. Returns what was done, in words."""
    is_earlier = number in nodes.earlier
    await nodes[number].stop()
    nodes.set_build(number, earlier=not is_earlier)
    await nodes[number].start()
    return "upgrade" if is_earlier else "rollback"


async def finalized(nodes: Nodes, client: AsyncClient) -> str:
    """Finalize the upgrade, and try the earlier build on a node, which must end at its start.

    Returns the outcome. Raises Unavailable if the cluster was not finalized in time, or if
    the earlier build started.
    """
    level = await finalize(client)
    node = nodes[nodes.numbers[-1]]
    await node.stop()
    nodes.set_build(node.number, earlier=True)
    await node.start()
    code = await node.wait_end()
    told = node.log_tail(1)
    nodes.set_build(node.number, earlier=False)
    await node.start()
    await node.wait_ready()
    if code != 1 or "feature level" not in told:
        raise Unavailable(f"the earlier build ended with {code} after the finalizing: {told}")
    return f"at feature level {level}, and the earlier build ended: {told}"


async def finalize(client: AsyncClient) -> int:
    """Raise the feature level of the cluster as far as all nodes know it. Returns the level.

    Raises Unavailable when the nodes do not agree in time.
    """
    until = asyncio.get_running_loop().time() + _FINALIZE_S
    while True:
        try:
            level: int = (await client.admin.finalize())["level"]
        except LognodeError as error:
            if asyncio.get_running_loop().time() > until:
                raise Unavailable(f"the level cannot be finalized: {error.message}") from None
            await asyncio.sleep(_RETRY_S)
        else:
            return level
