"""Manifests of a tier for tests, published with the bases of real states."""

import asyncio
from typing import Any

from flushed_range import FlushedRange

from lognode.client.objects.store import ObjectStore
from lognode.node.lifecycle import base_pieces
from lognode.node.tier.local_file import LocalFile
from lognode.node.tier.manifest import Held, LogFacts, Manifest
from lognode.node.tier.names import Chain, StoredFile
from lognode.node.tier.tier_store import TierStore
from lognode.statemachine.range_state import Base

POLICY = {"replicas": 1, "retention_ms": None, "retention_bytes": None, "cleanup": "delete"}


class TierWrites:
    """What leaders would do to a tier: each call is one manifest, whose files come first."""

    def __init__(self, objects: ObjectStore) -> None:
        self.store = TierStore(objects)
        self.store.begin("c1")

    def publish(
        self, made: FlushedRange, chain: Chain, number: int,
        span: tuple[bytes, bytes | None] = (b"", None), *, log: LogFacts | None = None,
        **more: Any,
    ) -> Manifest:  # fmt: skip
        """Publish the durable base of a state."""
        base = made.state.durable_base
        held = {}
        for info in base.manifest:
            file = StoredFile(chain, info.content_id, 1)
            local = LocalFile(made.store.path(info.content_id), info.content_id, info.size)
            local.check()
            for at, replaces in self.store.missing_parts(file, info.size):
                self.store.put_part(local, file, at, replace=replaces)
            local.close()
            held[info.content_id] = Held(info.size, file.path)
        tables = {"next_seq": base.tables["next_seq"], "removal": base.tables.get("removal"),
                  "last_timestamp_ms": base.tables.get("last_timestamp_ms", 0)}  # fmt: skip
        kept = Base(base.applied_index, base.applied_term, base.manifest, tables)
        manifest = Manifest(
            chain, number, log or LogFacts(1, "orders", POLICY), span, held, tuple(held),
            (base.applied_index, base.applied_term), asyncio.run(base_pieces.pack(kept)), **more,
        )  # fmt: skip
        assert self.store.publish(manifest)
        return manifest
