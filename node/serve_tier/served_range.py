"""A range of a log as one manifest of the tier has the range: a state that never changes."""

import hashlib
from collections.abc import Mapping
from typing import Final

from ...client.protocol.errors import CorruptData
from ...partitions.model import Descriptor
from ...partitions.model import Span as Keys
from ...raft.types import GroupId
from ...statemachine.range_state import Base, RangeState
from ...statemachine.segments import SegmentStore
from ...statemachine.spans import Span
from ..tier.manifest import Held, Manifest

NODE: Final = 1
"""The node id of the process: the only member of all ranges."""
_OF_PARTS: Final = 1 << 48
"""Ids of parts of ranges begin here, far above the ids that a cluster gives."""


class ServedRange:
    """Keys that are read from one manifest. Implements `replicas.read_turns.Readable`.

    Raises CorruptData for a base that does not fit its manifest. Blocks for milliseconds: the
    largest bases take some tenths of a second, so make ranges in a thread.
    """

    stopped: Final = False

    def __init__(self, head: Manifest, span: Span, base: Base, store: SegmentStore) -> None:
        if tuple(dict.fromkeys(info.content_id for info in base.manifest)) != head.files:
            raise CorruptData(f"{head.name} has other files than its base", outcome="not_applied")
        self.source = source_of(head, span)
        self.gid = GroupId(range_id_of(head, span), head.chain.generation)
        self.descriptor = Descriptor(
            *self.gid, log_id=head.log.log_id, span=Keys(*span), members=(NODE,)
        )
        self.written_ms = head.written_ms
        self.held: Mapping[str, Held] = head.held
        self.state = RangeState(start=span[0], end=span[1], store=store, base=base)

    @property
    def span(self) -> Span:
        """The keys."""
        return self.descriptor.span.start, self.descriptor.span.end


Source = tuple[int, int, int, Span]
"""A manifest by range, generation and number, and the keys that are read from it."""


def source_of(head: Manifest, span: Span) -> Source:
    """Return the name of the keys that are read from a manifest."""
    return *head.chain, head.number, span


def range_id_of(head: Manifest, span: Span) -> int:
    """Return the id of the range: that of the cluster, unless later generations have some keys.

    A client that knows the whole range must not take a part for the whole. Every process gives a
    part the same id.
    """
    if span == head.span:
        return head.chain.range_id
    digest = hashlib.sha256(repr((*head.chain, span)).encode()).digest()
    return _OF_PARTS + int.from_bytes(digest[:5])
