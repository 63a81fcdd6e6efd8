"""The files of a WAL on its disk: begun, let go, and used again.

A file that nothing needs becomes a spare, its bytes as they are, and a coming file takes a spare
before it makes one: overwriting blocks that a file has costs no allocation and no zeros to write,
which a round would wait for. The new header, with a signature of its own, is durable under the
spare's name before the name of a WAL file is given to it. So a file of that name never holds
old batches that could be taken for new ones, and never lacks a header but by damage.

One spare is made ahead, as etcd does, while the disk has room for it: then a file can be begun on
a disk that is full.
"""

from collections.abc import Callable

from .types import Disk
from .wal_format import Header, encode_header
from .wal_scan import file_name, spare_name

SPARES_MAX = 2
"""Files kept ahead. Rounds use one while the next is let go; more would only hold room."""


_AHEAD = spare_name(0)
"""The spare that is made ahead, which no file was before."""


class WalFiles:
    """All calls block, raise OSError, and come from one thread at a time; but `make_spare`, which
    may come from another one."""

    def __init__(self, disk: Disk, *, file_bytes: int, spares: list[str]) -> None:
        self._disk = disk
        self._file_bytes = file_bytes
        self._spares: list[str] = []
        for name in spares:
            # Made by a run with another size, or not made to its end.
            if disk.size(name) == file_bytes and len(self._spares) < SPARES_MAX:
                self._spares.append(name)
            else:
                disk.delete(name)

    @property
    def has_spare(self) -> bool:
        """Whether the next file of the usual size needs no room."""
        return bool(self._spares)

    def make_spare(self, settle: Callable[[str], None]) -> None:
        """Make a spare, durable on return, unless there is one. What is half made is removed.
        `settle` is called with its name before it is synced."""
        if self._spares:
            return
        self._disk.create(_AHEAD, self._file_bytes)
        try:
            settle(_AHEAD)
            self._disk.sync(_AHEAD)
            self._disk.sync_directory()
        except OSError:
            self._disk.delete(_AHEAD)
            raise
        self._spares.append(_AHEAD)

    def begin(self, header: Header) -> None:
        """Bring file `header.number` into being; durable, name and header, on return."""
        if header.size == self._file_bytes and self._spares:
            spare = self._spares.pop(0)
        else:
            spare = spare_name(header.number)
            if spare in self._spares:  # made for the same number before a crash, of another size
                self._spares.remove(spare)
                self._disk.delete(spare)
            self._disk.create(spare, header.size)
        self._disk.write(spare, 0, [encode_header(header)])
        self._disk.sync(spare)
        self._disk.rename(spare, file_name(header.number))
        self._disk.sync_directory()

    def let_go(self, number: int) -> None:
        """Nothing needs the file any more: durable on return, so that files go oldest first."""
        name, spare = file_name(number), spare_name(number)
        wanted = len(self._spares) < SPARES_MAX and spare not in self._spares
        if wanted and self._disk.size(name) == self._file_bytes:
            self._disk.rename(name, spare)
            self._spares.append(spare)
        else:
            self._disk.delete(name)
        self._disk.sync_directory()
