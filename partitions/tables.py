"""Tables of the metadata: records by key, whose changes are noted and can be undone.

Records lie in buckets of `BUCKET_RECORDS` consecutive keys. A bucket is what travels and what is
stored: it is small, has a bound whatever the keys are, and its packed bytes are kept until one of
its records changes. `Changes` keeps the buckets in the order of their last change, so that whoever
knows an earlier version gets the buckets that differ, and nothing else.
"""

from collections.abc import Callable, Collection
from typing import Any, Final, Generic, NamedTuple, Self, TypeVar

K = TypeVar("K", bound=int | str)
V = TypeVar("V")

BUCKET_RECORDS: Final = 32
"""Records of a bucket. One record of a range with two keys of 480 bytes weighs about 1.1 KiB."""
_ABSENT: Final = object()


class Bucket(NamedTuple):
    """The name of a bucket."""

    table: str
    number: int


class Stamp(NamedTuple):
    """When a bucket changed last."""

    tick: int
    """Counts the changes of buckets in this process."""
    version: int
    """The version of the metadata that the change made."""


class WouldChangeError(Exception):
    """A command that is only rehearsed is about to change a record."""


class Changes:
    """What changed in the tables of one metadata, and the packed bytes of their buckets."""

    def __init__(self) -> None:
        self.token = 0
        """Tells these ticks from those of another process; whoever serves pages sets it."""
        self.tick = 0
        self.floor = 0
        """Versions below this are unknown here: they differ in anything."""
        self.order: dict[Bucket, Stamp] = {}
        """In the order of the last change. A bucket without records stays, as a deletion."""
        self.packed: dict[Bucket, bytes] = {}
        self.rehearsing = False
        """The command under way is to change nothing."""
        self.touched: dict[Bucket, None] = {}
        """Buckets changed by the command under way."""
        self.undo: list[tuple[Table[Any, Any], Any, Any]] = []
        """What the command under way replaced, newest last."""

    def begin(self, version: int) -> None:
        """A command begins: what was changed outside of commands belongs to this version."""
        if self.touched:
            self.settle(version)

    def settle(self, version: int) -> None:
        """The command under way is applied and makes this version."""
        for bucket in self.touched:
            self.packed.pop(bucket, None)
            self.order.pop(bucket, None)
            self.tick += 1
            self.order[bucket] = Stamp(self.tick, version)
        self.touched.clear()
        self.undo.clear()

    def roll_back(self) -> None:
        """Undo the command under way."""
        for table, key, old in reversed(self.undo):
            if old is _ABSENT:
                table.drop(key)
            else:
                table.put(key, old)
        self.touched.clear()
        self.undo.clear()

    def tick_of(self, version: int) -> int:
        """The last tick of that version, or of the newest one before it."""
        for stamp in reversed(self.order.values()):
            if stamp.version <= version:
                return stamp.tick
        return 0

    def after(self, tick: int) -> list[tuple[int, Bucket]]:
        """The buckets changed after the tick, each with its tick, in order."""
        found = []
        for bucket, stamp in reversed(self.order.items()):
            if stamp.tick <= tick:
                break
            found.append((stamp.tick, bucket))
        found.reverse()
        return found

    def forget(self, bucket: Bucket) -> None:
        """The bucket is empty: whoever knows a version before that gets everything."""
        self.floor = max(self.floor, self.order.pop(bucket).version)
        self.packed.pop(bucket, None)

    def take(self, other: "Changes", tables: Collection[str]) -> None:
        """Have the other's stamps and bytes of the buckets of these tables."""
        self.tick, self.floor = other.tick, other.floor
        self.order = {b: stamp for b, stamp in other.order.items() if b.table in tables}
        self.packed = {b: data for b, data in other.packed.items() if b.table in tables}


class Kind(NamedTuple):
    """How the records of a table are written: `write` makes msgpack values, `read` undoes it."""

    name: str
    write: Callable[[Any, Any], Any]
    read: Callable[[Any], tuple[Any, Any]]
    """Raises KeyError, TypeError, ValueError or IndexError for what is no record."""
    is_numbered: bool = True
    """Whether the keys are numbers; else texts, of which there are few."""
    is_public: bool = True
    """Whether every node gets the table; a private one only the members of the controller."""


class Table(dict[K, V], Generic[K, V]):
    """Records by key. Reading is that of a dict; only the writes below note what they change."""

    def __init__(self, kind: Kind, changes: Changes) -> None:
        super().__init__()
        self.kind = kind
        self._changes = changes

    # Writes that are noted.

    def __setitem__(self, key: K, value: V) -> None:
        """Put a record. One that is there already, and equal, is no change."""
        old = self.get(key, _ABSENT)
        if old is _ABSENT or old != value:
            self._note(key, old)
            self.put(key, value)

    def __delitem__(self, key: K) -> None:
        """Remove a record. Raises KeyError."""
        self._note(key, self[key])
        self.drop(key)

    def pop(self, key: K, *default: Any) -> Any:
        """Remove a record and return it, or the default. Raises KeyError without one."""
        if key not in self:
            return super().pop(key, *default)
        found = self[key]
        del self[key]
        return found

    def _note(self, key: K, old: Any) -> None:
        if self._changes.rehearsing:
            raise WouldChangeError
        bucket = Bucket(self.kind.name, bucket_of(key))
        self._changes.touched[bucket] = None
        self._changes.undo.append((self, key, old))

    # Writes that are not.

    def put(self, key: K, value: V) -> None:
        """Put a record without a note."""
        if key in self:
            self._unlink(self[key])
        super().__setitem__(key, value)
        self._link(value)

    def drop(self, key: K) -> None:
        """Remove a record without a note."""
        self._unlink(self[key])
        super().__delitem__(key)

    def take(self, other: Self) -> None:
        """Have the records of another table of this kind, instead of none or of fewer."""
        dict.update(self, other)

    def _link(self, value: V) -> None:
        """Enter a record into the indexes of a subclass."""

    def _unlink(self, value: V) -> None:
        """Undo `_link`."""

    def _closed(self, *_: Any, **__: Any) -> Any:
        raise TypeError(f"table {self.kind.name} is changed a record at a time")

    update = setdefault = clear = popitem = __ior__ = _closed

    # Buckets.

    def keys_of(self, number: int) -> list[Any]:
        """The keys of a bucket that have records, ascending."""
        if not self.kind.is_numbered:
            return sorted(self)
        first = number * BUCKET_RECORDS
        return [key for key in range(first, first + BUCKET_RECORDS) if key in self]

    def buckets(self) -> list[Bucket]:
        """The buckets that have records, ascending."""
        return [Bucket(self.kind.name, at) for at in sorted(set(map(bucket_of, self)))]


def bucket_of(key: int | str) -> int:
    """The bucket of a key. A table whose keys are texts is one bucket."""
    return key // BUCKET_RECORDS if isinstance(key, int) else 0
