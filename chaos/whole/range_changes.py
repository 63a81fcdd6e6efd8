"""Changes of the ranges of a log that is tried beside the workload."""

import random
from collections.abc import Collection, Sequence

from ...client.client import AsyncClient


async def change_range(
    client: AsyncClient, log: str, keys: Sequence[str], nodes: Collection[int], rng: random.Random
) -> None:
    """Split, merge or move a range, as drawn. Raises the errors of the cluster."""
    what = rng.choice(("split", "split", "merge", "move"))
    if what == "split":
        await client.admin.split(log, at=rng.choice(keys), wait=False)
        return
    rows = await client.admin.ranges(log)
    row = rng.choice(rows)
    if what == "merge" and row["start"]:
        await client.admin.merge(log, at=row["start"], wait=False)
    others = sorted(set(nodes) - set(row["members"]))
    if what == "move" and others:
        await client.admin.move(
            row["id"], from_node=rng.choice(row["members"]), to_node=rng.choice(others), wait=False
        )
