"""`lognode status` as a table: what an operator has to see is in it."""

import asyncio
import io
from argparse import Namespace
from types import SimpleNamespace
from typing import Any

from lognode.client.cli.main import VERBS
from lognode.client.cli.printer import Printer
from lognode.client.cli.verb import Call

STATUS: dict[str, Any] = {
    "cluster": {"id": "c"},
    "nodes": [{"id": 1, "address": "h:1", "http": "h:2", "zone": "", "state": "ACTIVE",
               "replicas": 4, "alive": True, "disk_short": True,
               "insecure": True, "version": "9.9", "levels": [1, 2]}],
    "damaged": [{"node": 3, "range": 7, "generation": 2, "reason": "its log is not in the WAL"}],
    "tier": {"place": "s3://b/p", "waiting_files": 2, "waiting_bytes": 30, "waiting_s": 1.5,
             "last_success_ms": None, "last_error": "no answer"},
    "kafka": {"connections": 5, "groups": 1, "members": 2, "topics": 3},
}  # fmt: skip


def test_the_table_names_nodes_that_are_short_of_disk_or_insecure_and_damaged_replicas() -> None:
    async def status() -> dict[str, Any]:
        return STATUS

    out = io.StringIO()

    async def health(**_: Any) -> dict[str, Any]:
        return {"ok": False, "reasons": ["node 1 is short of disk"], "next": "free some space"}

    notes: list[str] = []
    client: Any = SimpleNamespace(status=status, health=health)
    call = Call(client, Namespace(), Printer("table", out), notes.append)
    asyncio.run(VERBS["status"].run(call))  # type: ignore[arg-type]
    assert out.getvalue().splitlines() == [
        "c", "1\th:1\th:2\t-\tACTIVE\t4\tyes\tyes\tyes\t9.9\t1,2",
        "3\t7\t2\tits log is not in the WAL", "s3://b/p\t2\t30\t1.5\t-\tno answer",
        "5\t1\t2\t3",
    ]  # fmt: skip
    assert notes == ["not healthy: node 1 is short of disk", "next: free some space"]
