"""The commits to an Iceberg table of an export: files are added, replaced, and left behind.

Each commit also sets the numbers of the manifest and of the removal that the table has, so a run
that was killed, or whose answer was lost, is followed by a run that does the rest. A commit that
another program overtook fails: PyIceberg would repeat the commit on top of the other, and the same
files would be in the table twice.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from lognode.client.protocol.errors import Conflict
from lognode.client.spark.jobs.contents import Swap
from lognode.client.spark.jobs.manifest import Manifest

if TYPE_CHECKING:  # an optional library
    from pyiceberg.manifest import DataFile, ManifestFile
    from pyiceberg.table import Table, Transaction
    from pyiceberg.table.snapshots import Snapshot

export_property: Final = "lognode.export"
manifest_property: Final = "lognode.manifest"
removal_property: Final = "lognode.removal"
vector_property: Final = "lognode.vector"


def has(table: "Table", name: str) -> int:
    """Return the number of the last manifest, or of the last removal, that the table has."""
    return int(table.properties.get(name, "0"))


def widen(table: "Table", columns: pa.Schema | None) -> None:
    """Add the columns that the table lacks. Another run that adds the same columns at once makes
    this commit fail, and nothing else."""
    known = {field.name for field in table.schema().fields}
    missing = [field for field in columns or () if field.name not in known]
    if missing:
        with table.update_schema() as update:
            update.union_by_name(pa.schema(missing))


def append(table: "Table", made: Manifest, files: Sequence[str]) -> None:
    """Add the files of the next manifest, as they are after all removals that the table has."""
    own = {export_property: made.export, manifest_property: str(made.number)}
    vector = made.snapshot.to_json()
    with _changes(table) as changes:
        if files:
            changes.add_files(list(files), snapshot_properties={**own, vector_property: vector})
        changes.set_properties(own)


def swap(table: "Table", swaps: Sequence[Swap]) -> None:
    """Replace the files of these removals, which follow the removals that the table has.

    A manifest that the table does not have yet is added later, without the removed entries. All
    removals are one commit, since a file of one removal may be gone with the next. Raises Conflict
    when another program has replaced the files of the export.
    """
    last = has(table, manifest_property)
    gone = {name: number for each in swaps for name, number in each.gone.items()}
    made = {name: number for each in swaps for name, number in each.files.items()}
    new = [name for name, number in made.items() if number <= last and name not in gone]
    old = {name for name, number in gone.items() if number <= last and name not in made}
    found = _found(table, old)
    if len(found) < len(old):
        raise Conflict(
            f"the table lacks {len(old) - len(found)} files of the export, which another program "
            "has replaced: the removed entries may be in the files of that program. Drop the "
            "table, and run the export again: the run makes the table anew"
        )
    own = {removal_property: str(swaps[-1].number)}
    with _changes(table) as changes:
        # Also without files: the commit has to fail when another run added a manifest meanwhile.
        update = changes.update_snapshot(snapshot_properties=own)
        with update.overwrite() as files:
            for file in _described(table, changes, new):
                files.append_data_file(file)
            for file in found:
                files.delete_data_file(file)
        changes.set_properties(own)


def leave(table: "Table", gone: Collection[str]) -> None:
    """Expire all snapshots that name one of these files, and delete their metadata.

    The table must have replaced the files. Raises Conflict when a branch or a tag holds such a
    snapshot.
    """
    current = table.current_snapshot()
    stale = _naming(table, gone)
    if current is not None and current.snapshot_id in stale:
        # The snapshot says which files it replaced, with the least and greatest values of their
        # columns. The next snapshot does not.
        with _changes(table) as changes, changes.update_snapshot().fast_append():
            pass
        stale = _naming(table, gone)
    if not stale:
        return
    held = [name for name, ref in table.refs().items() if ref.snapshot_id in stale]
    if held:
        raise Conflict(
            f"the branch or tag {held[0]!r} of the table holds a snapshot with removed entries. "
            "Remove the branch or tag, and run the export again"
        )
    gone_lists = {snapshot.manifest_list for snapshot in stale.values()}
    before = _manifests(table, stale.values())
    table.maintenance.expire_snapshots().by_ids(list(stale)).commit()
    table.refresh()
    kept = _manifests(table, table.snapshots())
    for path in (*gone_lists, *(path for path in before if path not in kept)):
        table.io.delete(path)


@contextmanager
def _changes(table: "Table") -> "Iterator[Transaction]":
    """Begin a transaction that is not repeated when another commit has overtaken it."""
    # This property of the copy in memory is not stored.
    table.metadata.properties["commit.retry.num-retries"] = "0"
    with table.transaction() as changes:
        yield changes


def _described(
    table: "Table", changes: "Transaction", names: Iterable[str]
) -> "Iterator[DataFile]":
    from pyiceberg.io.pyarrow import parquet_files_to_data_files

    return parquet_files_to_data_files(table.io, changes.table_metadata, iter(names))


def _found(table: "Table", names: Collection[str]) -> "list[DataFile]":
    """Return the files of the current snapshot that have these names."""
    current = table.current_snapshot()
    if current is None or not names:
        return []
    return [
        entry.data_file
        for each in current.manifests(table.io)
        for entry in each.fetch_manifest_entry(table.io, discard_deleted=True)
        if entry.data_file.file_path in names
    ]


def _naming(table: "Table", names: Collection[str]) -> "dict[int, Snapshot]":
    """Return the snapshots whose metadata name one of the files, by their ids."""
    naming = {
        path for path, each in _manifests(table, table.snapshots()).items()
        if any(entry.data_file.file_path in names
               for entry in each.fetch_manifest_entry(table.io, discard_deleted=False))
    }  # fmt: skip
    return {
        snapshot.snapshot_id: snapshot for snapshot in table.snapshots()
        if any(each.manifest_path in naming for each in snapshot.manifests(table.io))
    }  # fmt: skip


def _manifests(table: "Table", snapshots: "Iterable[Snapshot]") -> "Mapping[str, ManifestFile]":
    """Return the files that list the data files of the snapshots, by their paths."""
    return {
        each.manifest_path: each
        for snapshot in snapshots for each in snapshot.manifests(table.io)
    }  # fmt: skip
