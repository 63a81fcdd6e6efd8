"""All operations, by name and by number."""

from collections.abc import Mapping
from typing import Final

from . import frames
from .appends import APPENDS
from .cluster import CLUSTER
from .cursors import CURSORS
from .groups import GROUPS
from .invites import INVITES
from .node_reports import NODE_REPORTS
from .operation import Operation
from .partitions import PARTITIONS
from .peers import PEERS
from .quotas import QUOTAS
from .reads import READS
from .views import VIEWS

_ALL: Final = (
    *APPENDS, *READS, *PARTITIONS, *CURSORS, *GROUPS, *VIEWS, *CLUSTER, *PEERS, *QUOTAS,
    *INVITES, *NODE_REPORTS,
)  # fmt: skip
OPERATIONS: Final[Mapping[str, Operation]] = {operation.name: operation for operation in _ALL}
_BY_NUMBER: Final = {operation.number: operation for operation in _ALL}


def by_number(number: int) -> Operation | None:
    """Return the operation with this number on the wire, or None when it is unknown."""
    return _BY_NUMBER.get(number)


def name_of(number: int) -> str:
    """Return the name of a frame or operation, for messages to people."""
    operation = _BY_NUMBER.get(number)
    return operation.name if operation else frames.NAMES.get(number, f"operation {number}")
