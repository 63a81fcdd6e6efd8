"""Tables of the metadata: records by key, whose changes are noted and can be undone.

Records lie in buckets of `BUCKET_RECORDS` consecutive keys. A bucket is the unit of transfer and of
storage: it is small, has a bound for any keys, and its packed bytes are kept until one of its
records changes. `Changes` keeps the buckets in the order of their last change: a node that knows an
earlier version gets only the buckets that differ.
"""

from collections.abc import Callable, Collection
from typing import Any, Final, Generic, NamedTuple, Self, TypeVar

K = TypeVar("K", bound=int | str)
V = TypeVar("V")

BUCKET_RECORDS: Final = 32
"""The number of records in a bucket. The record of a range with two keys of 480 bytes has about 1.1
KiB."""
_ABSENT: Final = object()


class Bucket(NamedTuple):
    """The name of a bucket."""

    table: str
    number: int


class Stamp(NamedTuple):
    """The last change of a bucket."""

    tick: int
    """Counts the changes of buckets in this process."""
    version: int
    """The version of the metadata that the change made."""


class WouldChangeError(Exception):
    """A command that is only rehearsed is about to change a record."""


class Changes:
    """The changes in the tables of one metadata, and the packed bytes of their buckets."""

    def __init__(self) -> None:
        self._token = 0
        self.tick = 0
        self.floor = 0
        """The oldest version known here: an older version may differ anywhere."""
        self.order: dict[Bucket, Stamp] = {}
        """Buckets in the order of their last change. An empty bucket stays, as a deletion."""
        self.packed: dict[Bucket, bytes] = {}
        self.rehearsing = False
        """The current command must not change anything."""
        self.touched: dict[Bucket, None] = {}
        """The buckets that the current command has changed."""
        self.undo: list[tuple[Table[Any, Any], Any, Any]] = []
        """The values that the current command has replaced, newest last."""

    def named(self, new_token: Callable[[], int]) -> int:
        """Return a number that distinguishes these ticks from the ticks of another process.

        `new_token` makes the number at the first call.
        """
        self._token = self._token or new_token()
        return self._token

    def begin(self, version: int) -> None:
        """Begin a command: changes made outside of commands belong to this version."""
        if self.touched:
            self.settle(version)

    def settle(self, version: int) -> None:
        """End the current command, which makes this version."""
        for bucket in self.touched:
            self.packed.pop(bucket, None)
            self.order.pop(bucket, None)
            self.tick += 1
            self.order[bucket] = Stamp(self.tick, version)
        self.touched.clear()
        self.undo.clear()

    def roll_back(self) -> None:
        """Undo the current command."""
        for table, key, old in reversed(self.undo):
            if old is _ABSENT:
                table.drop(key)
            else:
                table.put(key, old)
        self.touched.clear()
        self.undo.clear()

    def version_of(self, bucket: Bucket) -> int:
        """Return the version in which a record of the bucket changed last, or a later version: all
        changes before the oldest version that is known here count as made in that version."""
        stamp = self.order.get(bucket)
        return self.floor if stamp is None else max(self.floor, stamp.version)

    def tick_of(self, version: int) -> int:
        """Return the last tick of that version, or of the newest version before it."""
        for stamp in reversed(self.order.values()):
            if stamp.version <= version:
                return stamp.tick
        return 0

    def after(self, tick: int) -> list[tuple[int, Bucket]]:
        """Return the buckets changed after the tick, each with its tick, in order."""
        found = []
        for bucket, stamp in reversed(self.order.items()):
            if stamp.tick <= tick:
                break
            found.append((stamp.tick, bucket))
        found.reverse()
        return found

    def forget(self, bucket: Bucket) -> None:
        """Forget an empty bucket: a reader with an older version then gets everything."""
        self.floor = max(self.floor, self.order.pop(bucket).version)
        self.packed.pop(bucket, None)

    def take(self, other: "Changes", tables: Collection[str]) -> None:
        """Copy the other's stamps and packed bytes of the buckets of these tables."""
        self.tick, self.floor = other.tick, other.floor
        self.order = {b: stamp for b, stamp in other.order.items() if b.table in tables}
        self.packed = {b: data for b, data in other.packed.items() if b.table in tables}


class Kind(NamedTuple):
    """How the records of a table are written: `write` makes msgpack values, `read` undoes it."""

    name: str
    write: Callable[[Any, Any], Any]
    read: Callable[[Any], tuple[Any, Any]]
    """Raises KeyError, TypeError, ValueError or IndexError for anything but a record."""
    is_numbered: bool = True
    """Whether the keys are numbers; otherwise they are texts, and few."""
    is_public: bool = True
    """Whether every node gets the table; a private table stays with the members of the
    controller."""


class Table(dict[K, V], Generic[K, V]):
    """Records by key, read as a dict. Only the writes below note their changes."""

    def __init__(self, kind: Kind, changes: Changes) -> None:
        super().__init__()
        self.kind = kind
        self._changes = changes

    # Writes that are noted.

    def __setitem__(self, key: K, value: V) -> None:
        """Put a record. An equal record that is already there counts as no change."""
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

    # Writes that are not noted.

    def put(self, key: K, value: V) -> None:
        """Put a record without noting the change."""
        if key in self:
            self._unlink(self[key])
        super().__setitem__(key, value)
        self._link(value)

    def drop(self, key: K) -> None:
        """Remove a record without noting the change."""
        self._unlink(self[key])
        super().__delitem__(key)

    def take(self, other: Self) -> None:
        """Take over the records of another table of this kind; this table has none, or fewer."""
        dict.update(self, other)

    def _link(self, value: V) -> None:
        """Enter a record into the indexes of a subclass."""

    def _unlink(self, value: V) -> None:
        """Undo `_link`."""

    def _closed(self, *_: Any, **__: Any) -> Any:
        raise TypeError(f"table {self.kind.name} changes only by single records")

    update = setdefault = clear = popitem = __ior__ = _closed

    # Buckets.

    def keys_of(self, number: int) -> list[Any]:
        """Return the keys of a bucket that have records, ascending."""
        if not self.kind.is_numbered:
            return sorted(self)
        first = number * BUCKET_RECORDS
        return [key for key in range(first, first + BUCKET_RECORDS) if key in self]

    def buckets(self) -> list[Bucket]:
        """Return the buckets that have records, ascending."""
        return [Bucket(self.kind.name, at) for at in sorted(set(map(bucket_of, self)))]


def bucket_of(key: int | str) -> int:
    """Return the bucket of a key. A table whose keys are texts is one bucket."""
    return key // BUCKET_RECORDS if isinstance(key, int) else 0
