"""What the answer to each operation may weigh at most: the node asks for that much room first."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from ..client import limits, wire

Body = dict[str, Any]

_SMALL_BYTES: Final = 4 * limits.KIB
"""Answers of fixed fields, and errors."""
_BATCH_BYTES: Final = 64
"""The answer of a batch that was appended as it came."""
_ENTRY_BYTES: Final = (
    limits.key_bytes_max + limits.value_bytes_max + limits.header_bytes_max + limits.KIB
)
"""A page has one entry at least, however few bytes were asked for."""
_LAYOUT_BYTES: Final = limits.MIB
_WHOLE_BYTES: Final = limits.frame_bytes_max
"""Answers that grow with the cluster."""


def weigh(op: str, body: Body) -> int:
    """Bytes, of an answer or of one push. Of any body, whatever its fields are."""
    weight = _WEIGHTS.get(op, _SMALL_BYTES)
    return weight if isinstance(weight, int) else weight(body)


def _append(body: Body) -> int:
    batches = body.get("batches")
    count = len(batches) if type(batches) is list else 0
    return _SMALL_BYTES + min(count, limits.request_batches_max) * _BATCH_BYTES


def _page(body: Body) -> int:
    return _ENTRY_BYTES + _bounded(body.get("bytes"), limits.page_bytes_default,
                                   limits.page_bytes_max)  # fmt: skip


def _keys(body: Body) -> int:
    limit = _bounded(body.get("limit"), limits.keys_page_max, limits.keys_page_max)
    return _SMALL_BYTES + limit * (limits.key_bytes_max + 3)


def _file(body: Body) -> int:
    most = limits.base_chunk_bytes
    return _SMALL_BYTES + _bounded(body.get("bytes"), most, most)


def _bounded(value: object, default: int, most: int) -> int:
    return max(0, min(value, most)) if type(value) is int else default


_WEIGHTS: Final[Mapping[str, int | Callable[[Body], int]]] = {
    wire.APPEND: _append,
    wire.LATEST: _ENTRY_BYTES,
    wire.SCAN: _page,
    wire.KEYS: _keys,
    wire.READ_SPAN: _page,
    wire.EXPORT: _page,
    wire.LAYOUT: _LAYOUT_BYTES,
    wire.FOLLOW: 2 * limits.page_bytes_default + _ENTRY_BYTES,
    wire.METADATA: _WHOLE_BYTES,
    wire.STATUS: _WHOLE_BYTES,
    wire.HEALTH: _WHOLE_BYTES,
    # Between nodes.
    "base": _WHOLE_BYTES,
    "file": _file,
    "image": _WHOLE_BYTES,
    "loads": _WHOLE_BYTES,
}
