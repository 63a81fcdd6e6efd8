"""The tables of the metadata: how their records are written, and their indexes."""

from typing import Any, Final, Self

from .groups import GroupRecord
from .model import Descriptor, LastOperation, LogRecord, NodeRecord, Operation
from .producers import NAMED, Named
from .tables import Changes, Kind, Table
from .tokens import TokenRecord
from .views import ViewRecord

_CONTROLLER: Final = "controller"
_TOKENS: Final = "tokens"


def _write_head(key: str, value: Any) -> Any:
    return [key, value.to_wire() if key == _CONTROLLER else value]


def _read_head(told: Any) -> tuple[str, Any]:
    key, value = told
    return str(key), Descriptor.from_wire(value) if key == _CONTROLLER else value


def _read_log(told: Any) -> tuple[int, LogRecord]:
    record = LogRecord.from_image(told)
    return record.log_id, record


def _write_access(key: str, value: Any) -> Any:
    return [key, [record.to_image() for record in value.values()] if key == _TOKENS else value]


def _read_access(told: Any) -> tuple[str, Any]:
    key, value = told
    if key == _TOKENS:
        return key, {body["id"]: TokenRecord.from_image(body) for body in value}
    return str(key), value


def _read_quota(told: Any) -> tuple[str, dict[str, int]]:
    name, found = told
    return str(name), {str(kind): int(limit) for kind, limit in found.items()}


def _read_group(told: Any) -> tuple[int, GroupRecord]:
    record = GroupRecord.from_image(told)
    return record.group_id, record


def _read_view(told: Any) -> tuple[int, ViewRecord]:
    record = ViewRecord.from_image(told)
    return record.view_id, record


def _read_number(told: Any) -> tuple[int, int]:
    key, value = told
    return int(key), int(value)


def _read_counter(told: Any) -> tuple[str, int]:
    key, value = told
    return str(key), int(value)


def _read_last(told: Any) -> tuple[int, LastOperation]:
    key, last = told
    return int(key), LastOperation.from_image(last)


HEAD: Final = Kind("head", _write_head, _read_head, is_numbered=False)
"""The single records: `cluster`, `controller`, `sealed`, `logs_deleted`, `founders`; `founded_ms`,
where the version that founded the cluster kept it; `feature_level`, above the first level;
`groups_deleted` and `views_deleted`, once one was deleted."""
NEXT_IDS: Final = Kind("next_ids", lambda key, value: [key, value], _read_counter,
                       is_numbered=False)  # fmt: skip
NODES: Final = Kind("nodes", lambda _, node: node.to_image(),
                    lambda told: (int(told["node_id"]), NodeRecord(**told)))  # fmt: skip
LOGS: Final = Kind("logs", lambda _, record: record.to_image(), _read_log)
RANGES: Final = Kind("ranges", lambda _, range_: range_.to_wire(),
                     lambda told: (int(told["id"]), Descriptor.from_wire(told)))  # fmt: skip
OPERATIONS: Final = Kind("operations", lambda _, operation: operation.to_image(),
                         lambda told: (int(told["operation_id"]), Operation.from_image(told)),
                         )  # fmt: skip
LAST_OPERATIONS: Final = Kind("last_operations", lambda key, last: [key, last.to_image()],
                               _read_last)  # fmt: skip
ACCESS: Final = Kind("access", _write_access, _read_access, is_numbered=False)
"""The `tokens` together, the `version` in which they changed last, and the `producer_key`."""
QUOTAS: Final = Kind("quotas", lambda name, found: [name, dict(found)], _read_quota,
                     is_numbered=False)  # fmt: skip
GROUPS: Final = Kind("groups", lambda _, record: record.to_image(), _read_group)
VIEWS: Final = Kind("views", lambda _, record: record.to_image(), _read_view)
DONE: Final = Kind("done", lambda key, value: [key, value], _read_number)


class Logs(Table[int, LogRecord]):
    """Logs by id, and by name."""

    def __init__(self, changes: Changes) -> None:
        super().__init__(LOGS, changes)
        self.ids: dict[str, int] = {}

    def take(self, other: Self) -> None:
        super().take(other)
        self.ids = dict(other.ids)

    def _link(self, value: LogRecord) -> None:
        self.ids[value.name] = value.log_id

    def _unlink(self, value: LogRecord) -> None:
        self.ids.pop(value.name, None)


class Groups(Table[int, GroupRecord]):
    """Groups by id, and the ids of each log by name."""

    def __init__(self, changes: Changes) -> None:
        super().__init__(GROUPS, changes)
        self._of_log: dict[int, dict[str, int]] = {}

    def of_log(self, log_id: int) -> list[GroupRecord]:
        """Return the groups of a log by name."""
        found = self._of_log.get(log_id, {})
        return [self[found[name]] for name in sorted(found)]

    def named(self, log_id: int, name: str) -> GroupRecord | None:
        """Return the group of a log with that name, or None."""
        group_id = self._of_log.get(log_id, {}).get(name)
        return None if group_id is None else self[group_id]

    def take(self, other: Self) -> None:
        super().take(other)
        self._of_log = {log_id: dict(ids) for log_id, ids in other._of_log.items()}

    def _link(self, value: GroupRecord) -> None:
        self._of_log.setdefault(value.log_id, {})[value.name] = value.group_id

    def _unlink(self, value: GroupRecord) -> None:
        names = self._of_log.get(value.log_id, {})
        names.pop(value.name, None)
        if not names:
            self._of_log.pop(value.log_id, None)


class Views(Table[int, ViewRecord]):
    """Views by id, and the ids of each log by name."""

    def __init__(self, changes: Changes) -> None:
        super().__init__(VIEWS, changes)
        self._of_log: dict[int, dict[str, int]] = {}

    def of_log(self, log_id: int) -> list[ViewRecord]:
        """Return the views of a log by name."""
        found = self._of_log.get(log_id, {})
        return [self[found[name]] for name in sorted(found)]

    def named(self, log_id: int, name: str) -> ViewRecord | None:
        """Return the view of a log with that name, or None."""
        view_id = self._of_log.get(log_id, {}).get(name)
        return None if view_id is None else self[view_id]

    def take(self, other: Self) -> None:
        super().take(other)
        self._of_log = {log_id: dict(ids) for log_id, ids in other._of_log.items()}

    def _link(self, value: ViewRecord) -> None:
        self._of_log.setdefault(value.log_id, {})[value.name] = value.view_id

    def _unlink(self, value: ViewRecord) -> None:
        names = self._of_log.get(value.log_id, {})
        names.pop(value.name, None)
        if not names:
            self._of_log.pop(value.log_id, None)


class Ranges(Table[int, Descriptor]):
    """Ranges by id; the ranges of a log in key order; the ranges that name a range as a parent."""

    def __init__(self, changes: Changes) -> None:
        super().__init__(RANGES, changes)
        self._of_log: dict[int, dict[int, None]] = {}
        self._children: dict[int, dict[int, None]] = {}
        self._sorted: dict[int, list[Descriptor]] = {}
        """The sorted ranges of each log that was read, until one of its ranges changes."""

    def of_log(self, log_id: int) -> list[Descriptor]:
        """Return the log's ranges in key order. The list belongs to the index: do not change it."""
        found = self._sorted.get(log_id)
        if found is None:
            found = sorted(map(self.__getitem__, self._of_log.get(log_id, ())), key=_start)
            self._sorted[log_id] = found
        return found

    def count(self, log_id: int) -> int:
        """Return how many ranges the log has."""
        return len(self._of_log.get(log_id, ()))

    def children(self, range_id: int) -> list[Descriptor]:
        """Return the ranges whose lineage names the range."""
        return list(map(self.__getitem__, self._children.get(range_id, ())))

    def take(self, other: Self) -> None:
        super().take(other)
        self._of_log = {log_id: dict(ids) for log_id, ids in other._of_log.items()}
        self._children = {range_id: dict(ids) for range_id, ids in other._children.items()}
        self._sorted = dict(other._sorted)

    def _link(self, value: Descriptor) -> None:
        self._of_log.setdefault(value.log_id, {})[value.range_id] = None
        self._sorted.pop(value.log_id, None)
        for parent in value.lineage:
            self._children.setdefault(parent.range_id, {})[value.range_id] = None

    def _unlink(self, value: Descriptor) -> None:
        _forget(self._of_log, value.log_id, value.range_id)
        self._sorted.pop(value.log_id, None)
        for parent in value.lineage:
            _forget(self._children, parent.range_id, value.range_id)


class Producers(Table[int, Named]):
    """Named producers by number, and by name; how many each owner has, and their bytes."""

    def __init__(self, changes: Changes) -> None:
        super().__init__(NAMED, changes)
        self.numbers: dict[str, int] = {}
        self.name_bytes = 0
        self._owners: dict[str, tuple[int, int]] = {}

    def named(self, name: str) -> Named | None:
        """Return the producer of that name, or None."""
        number = self.numbers.get(name)
        return None if number is None else self[number]

    def take(self, other: Self) -> None:
        super().take(other)
        self.numbers, self.name_bytes = dict(other.numbers), other.name_bytes
        self._owners = dict(other._owners)

    def of_owner(self, owner: str) -> tuple[int, int]:
        """Return how many names the owner has, and the total bytes of these names."""
        return self._owners.get(owner, (0, 0))

    def _link(self, value: Named) -> None:
        self.numbers[value.name] = value.number
        self._count(value, 1)

    def _unlink(self, value: Named) -> None:
        self.numbers.pop(value.name, None)
        self._count(value, -1)

    def _count(self, value: Named, sign: int) -> None:
        size = len(value.name.encode())
        count, held = self.of_owner(value.owner)
        self.name_bytes += sign * size
        self._owners[value.owner] = (count + sign, held + sign * size)
        if count + sign == 0:
            del self._owners[value.owner]


def _start(range_: Descriptor) -> bytes:
    return range_.span.start


def _forget(index: dict[int, dict[int, None]], key: int, member: int) -> None:
    members = index.get(key)
    if members is not None:
        members.pop(member, None)
        if not members:
            del index[key]
