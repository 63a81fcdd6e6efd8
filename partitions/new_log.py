"""The ranges of a new log: their spans, and the nodes that get their replicas.

A log may begin with thousands of ranges, and choosing the members of all of them takes up to 90 ms.
So a replica of the controller makes the ranges ahead, in steps, before it applies the command that
creates the log. Apply takes them if nothing has changed since, and otherwise makes them itself:
the result is the same.
"""

from collections.abc import Generator, Iterator
from typing import Any, NamedTuple

from ..client.protocol import key_partitions
from ..client.protocol.errors import InvalidArgument, LognodeError
from . import allocate, placement, splits
from .metadata_state import MetadataState
from .model import Descriptor, Span
from .placement import Homes, group_size
from .policy import of_request

Command = dict[str, Any]


class Ahead(NamedTuple):
    """Ranges that were made before their command was applied."""

    command: Command
    tick: int
    """The last change of the metadata from which they were made."""
    ranges: list[Descriptor]

    def fits(self, state: MetadataState, command: Command) -> bool:
        """Whether they are what the command, applied now, makes."""
        return self.command is command and self.tick == state.changes.tick


def spans_of(command: Command) -> list[Span]:
    """Return the spans of the log's ranges. Raises InvalidArgument or LimitExceeded."""
    split_at, ranges = command.get("split_at"), command.get("ranges") or 1
    partitions = command.get("kafka_partitions")
    if split_at is not None:
        if partitions is not None:
            splits.check_bounds(split_at, partitions)
        return allocate.spans_at(split_at)
    if partitions is not None:
        allocate.check_count(ranges)
        return allocate.spans_at(key_partitions.even_bounds(partitions, ranges))
    return allocate.even_spans(ranges)


def homes_of(state: MetadataState) -> Homes:
    """Return the active nodes, ordered by their number of replicas. Raises InvalidArgument."""
    nodes = state.active_nodes()
    if not nodes:
        raise InvalidArgument("no node is ACTIVE", what="replicas")
    return Homes(nodes, placement.load_of(state.ranges, state.operations.values()))


def ranges(
    state: MetadataState, spans: list[Span], homes: Homes, replicas: int
) -> Iterator[Descriptor]:
    """Return the ranges of the next log, one after another. They have the ids that are next now."""
    log_id, first, size = (
        state.next_ids["log"], state.next_ids["range"], group_size(replicas, len(homes))
    )  # fmt: skip
    return (
        Descriptor(range_id, 1, log_id, span, tuple(sorted(homes.take(size))))
        for range_id, span in enumerate(spans, first)
    )


def steps(state: MetadataState, command: Command) -> Generator[None, None, Ahead | None]:
    """Make the ranges in steps. Return None for a command that makes no log."""
    tick = state.changes.tick
    found: list[Descriptor] = []
    try:
        if command["name"] in state.logs.ids:
            return None
        spans, homes = spans_of(command), homes_of(state)
        yield
        for range_ in ranges(state, spans, homes, of_request(command).replicas):
            found.append(range_)
            yield
    except (LognodeError, KeyError, TypeError, ValueError):
        return None
    return Ahead(command, tick, found)
