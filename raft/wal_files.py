"""The files of a WAL on its disk: how they begin, end and are used again.

A file that nothing needs becomes a spare, with its bytes as they are. A new file takes a spare if
there is one: overwriting the blocks of a file needs no allocation and no zeros to write, for which
a round would wait. The new header, with a signature of its own, is durable under the spare's name
before the file gets the name of a WAL file. So a WAL file never holds old batches that could pass
for new ones, and lacks a header only when it is damaged.

One spare is made ahead, as etcd does, while the disk has room for it: then a new file can begin on
a full disk.
"""

from collections.abc import Callable

from .types import Disk
from .wal_format import Header, encode_header
from .wal_scan import file_name, spare_name

SPARES_MAX = 2
"""The number of spares. Rounds use one while the next is freed; more would only hold room."""


_AHEAD = spare_name(0)
"""The name of the spare that is made ahead; it was never a WAL file."""


class WalFiles:
    """The files of a WAL. All calls block and raise OSError.

    Calls come from one thread at a time; only `make_spare` may come from another thread.
    """

    def __init__(self, disk: Disk, *, file_bytes: int, spares: list[str]) -> None:
        self._disk = disk
        self._file_bytes = file_bytes
        self._spares: list[str] = []
        for name in spares:
            # A run with another file size made this spare, or it is incomplete.
            if disk.size(name) == file_bytes and len(self._spares) < SPARES_MAX:
                self._spares.append(name)
            else:
                disk.delete(name)

    @property
    def has_spare(self) -> bool:
        """Whether the next file of the usual size needs no room."""
        return bool(self._spares)

    def make_spare(self, settle: Callable[[str], None]) -> None:
        """Make a spare, durable on return, unless one exists. A half made file is removed.

        `settle` is called with the name of the spare before it is synced.
        """
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
        """Create file `header.number`; its name and header are durable on return."""
        if header.size == self._file_bytes and self._spares:
            spare = self._spares.pop(0)
        else:
            spare = spare_name(header.number)
            if spare in self._spares:  # made for this number before a crash, of another size
                self._spares.remove(spare)
                self._disk.delete(spare)
            self._disk.create(spare, header.size)
        self._disk.write(spare, 0, [encode_header(header)])
        self._disk.sync(spare)
        self._disk.rename(spare, file_name(header.number))
        self._disk.sync_directory()

    def let_go(self, number: int) -> None:
        """Free a file that nothing needs. Durable on return, so that the oldest files go first."""
        name, spare = file_name(number), spare_name(number)
        wanted = len(self._spares) < SPARES_MAX and spare not in self._spares
        if wanted and self._disk.size(name) == self._file_bytes:
            self._disk.rename(name, spare)
            self._spares.append(spare)
        else:
            self._disk.delete(name)
        self._disk.sync_directory()
