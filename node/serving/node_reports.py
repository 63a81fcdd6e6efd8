"""Serve `node_report`: what this node tells people of its storage, settings and connections."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from ...client.accepting.request import Room
from ...client.protocol import Operation
from ...client.protocol.node_reports import CONNECTIONS, NODE_REPORT, SETTINGS, STORAGE
from ...raft.wal import Wal
from ..config import Config, shown
from ..directory.disk_room import DiskRoom
from ..runtime.slices import in_slices

Row = dict[str, Any]
Rows = Callable[[], Iterator[Row]]
_TEXT_CHARS: Final = 4_096


class NodeReports:
    """Serves the pages. `replicas` and `connections` yield a row for each, of which few change from
    one page to the next; `files` returns the use of file descriptors."""

    def __init__(
        self,
        *,
        node_id: int,
        config: Config,
        wal: Wal,
        room: DiskRoom,
        replicas: Rows,
        connections: Rows,
        files: Callable[[], Row],
    ) -> None:
        self._node_id = node_id
        self._config = config
        self._wal = wal
        self._room = room
        self._files = files
        self._rows: Mapping[str, Rows] = {
            STORAGE: replicas, CONNECTIONS: connections, SETTINGS: self._settings,
        }  # fmt: skip
        self._facts: Mapping[str, Callable[[], Row]] = {
            STORAGE: self._storage, CONNECTIONS: files, SETTINGS: dict,
        }  # fmt: skip
        self.paid_handlers: dict[Operation, Callable[[Row, Room], Any]] = {NODE_REPORT: self.serve}

    async def serve(self, body: Row, room: Room) -> Row:
        """Return a page of the part."""
        await room()
        rows = await in_slices(self._rows[body["part"]]())
        first = body["offset"]
        return {
            "node": self._node_id,
            "facts": self._facts[body["part"]](),
            "rows": rows[first : first + body["limit"]],
            "total": len(rows),
        }

    def _storage(self) -> Row:
        return {
            "data": str(self._config.data)[:_TEXT_CHARS],
            "disk_free_bytes": self._room.free,
            "disk_reserve_bytes": self._room.reserve,
            "disk_level": self._room.level.name,
            "wal_files": self._wal.file_count,
            "wal_file_bytes": self._wal.file_bytes,
            "wal_syncs": self._wal.syncs,
            "wal_groups": len(self._wal.groups),
            "files": self._files(),
        }

    def _settings(self) -> Iterator[Row]:
        for name, value, source in shown(self._config):
            yield {"name": name, "value": value[:_TEXT_CHARS], "source": source}
