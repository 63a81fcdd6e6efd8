"""Removals reach the Iceberg table of an export: files are replaced at once, and left behind."""

import argparse
import contextlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog

from lognode.client.protocol.errors import Conflict, Unavailable
from lognode.client.spark.jobs import iceberg
from lognode.client.spark.jobs.contents import Swap, manifest_of
from lognode.client.spark.jobs.manifest import Manifest
from lognode.client.spark.jobs.removal import Removal
from lognode.client.vector import Part, Vector

NAME = "lake.flights"
HEADERS = pa.list_(pa.struct([("key", pa.binary()), ("value", pa.binary())]))
SCHEMA = pa.schema([
    ("key", pa.binary()), ("value", pa.binary()), ("seq", pa.int64()),
    ("timestamp", pa.timestamp("us", "UTC")), ("headers", HEADERS), ("snapshot", pa.bool_()),
])  # fmt: skip
DAY_US = 86_400_000_000
Row = tuple[bytes, int]


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[Catalog]:
    with opened(tmp_path) as made:
        yield made


def opened(tmp_path: Path) -> Catalog:
    properties = [f"uri=sqlite:///{tmp_path}/catalog.db", f"warehouse=file://{tmp_path}/warehouse"]
    return iceberg.opened(
        argparse.Namespace(iceberg=NAME, catalog="test", catalog_property=properties)
    )


def written(tmp_path: Path, name: str, rows: Sequence[Row]) -> str:
    """The location of a file with these rows, on one day."""
    file = tmp_path / name
    file.parent.mkdir(parents=True, exist_ok=True)
    columns = {
        "key": [key for key, _ in rows], "value": [b"v"] * len(rows),
        "seq": [seq for _, seq in rows], "timestamp": [DAY_US * 20_000 + seq for _, seq in rows],
        "headers": [None] * len(rows), "snapshot": [False] * len(rows),
    }  # fmt: skip
    pq.write_table(pa.table(columns, schema=SCHEMA), file)
    return f"file://{file}"


class Export:
    """Manifests of two files each: keys a and b in one file, key c in the other."""

    def __init__(self, tmp_path: Path, count: int = 2) -> None:
        self.path = tmp_path
        self.swaps: list[Swap] = []
        self.manifests: list[Manifest] = []
        self.now: dict[int, dict[str, list[Row]]] = {}
        for _ in range(count):
            self.add()

    def add(self) -> None:
        number = len(self.manifests) + 1
        vector = Vector("c", "flights", 1, "", 0, (Part(b"", None, 10 * number),))
        self.manifests.append(Manifest("e", number, f"data/{number:08}-x", 3, vector))
        seq = 10 * number
        self.now[number] = {}
        for name, rows in (("1", [(b"a", seq), (b"b", seq + 1)]), ("2", [(b"c", seq + 2)])):
            location = written(self.path, f"data/{number:08}-x/day=1/{name}.parquet", rows)
            self.now[number][location] = rows

    def remove(self, is_gone: Callable[[Row], bool]) -> None:
        """Publish a removal of these rows."""
        number = len(self.swaps) + 1
        made = Swap(number, {}, {})
        for of, files in self.now.items():
            for at, (location, rows) in enumerate(list(files.items())):
                left = [row for row in rows if not is_gone(row)]
                if left == rows:
                    continue
                made.gone[location] = of
                del files[location]
                if left:
                    name = f"data/removal-{number:08}-x/of={of:08}/day=1/{at}.parquet"
                    new = written(self.path, name, left)
                    made.files[new] = of
                    files[new] = left
        self.swaps.append(made)

    def files(self, made: Manifest) -> list[str]:
        return list(self.now[made.number])

    def to(self, catalog: Catalog) -> int:
        removals = [
            Removal("e", each.number, (), "data/x", 0, 0, self.manifests[0].snapshot)
            for each in self.swaps
        ]
        return iceberg.add(
            catalog, NAME, self.manifests, self.files, removals=removals,
            swap=lambda made: self.swaps[made.number - 1],
        )  # fmt: skip

    def rows(self) -> list[Row]:
        return sorted(row for files in self.now.values() for rows in files.values() for row in rows)


def shown(catalog: Catalog) -> list[Row]:
    rows = catalog.load_table(NAME).scan().to_arrow().to_pylist()
    return sorted((row["key"], row["seq"]) for row in rows)


def is_b(row: Row) -> bool:
    return row[0] == b"b"


def metadata(tmp_path: Path) -> set[str]:
    """The lists of files that are there."""
    return {f"file://{path}" for path in (tmp_path / "warehouse").rglob("*.avro")}


def named(catalog: Catalog) -> set[str]:
    """The lists of files that the snapshots of the table name."""
    table = catalog.load_table(NAME)
    snapshots = list(table.snapshots())
    lists = {snapshot.manifest_list for snapshot in snapshots}
    return lists | {
        each.manifest_path for snapshot in snapshots for each in snapshot.manifests(table.io)
    }


def test_the_name_of_a_file_tells_its_manifest() -> None:
    assert manifest_of("data/00000012-ab12/day=2026-01-01/part-0.parquet") == 12
    assert manifest_of("data/removal-00000003-ab12/of=00000007/day=2026-01-01/p.parquet") == 7


def test_S6_a_removal_replaces_files_in_one_commit(catalog: Catalog, tmp_path: Path) -> None:
    export = Export(tmp_path)
    assert export.to(catalog) == 2
    assert len(shown(catalog)) == 6
    export.remove(is_b)
    for _ in range(2):
        assert export.to(catalog) == 0
        assert shown(catalog) == export.rows() == [
            (b"a", 10), (b"a", 20), (b"c", 12), (b"c", 22)
        ]  # fmt: skip
    assert len(list(catalog.load_table(NAME).snapshots())) == 3
    export.remove(lambda row: row[1] < 20)
    export.remove(lambda row: row[0] == b"a")
    export.add()
    assert export.to(catalog) == 1
    assert shown(catalog) == export.rows() == [(b"a", 30), (b"b", 31), (b"c", 22), (b"c", 32)]


def test_a_new_table_gets_what_removals_have_left(catalog: Catalog, tmp_path: Path) -> None:
    export = Export(tmp_path)
    export.remove(is_b)
    assert export.to(catalog) == 2
    assert shown(catalog) == export.rows()
    export.remove(lambda row: True)
    assert export.to(catalog) == 0
    assert shown(catalog) == []


def test_manifests_that_the_table_lacks_come_without_the_removed_entries(
    catalog: Catalog, tmp_path: Path
) -> None:
    export = Export(tmp_path, count=1)
    assert export.to(catalog) == 1
    export.add()
    export.remove(is_b)
    assert export.to(catalog) == 1
    assert shown(catalog) == export.rows() == [(b"a", 10), (b"a", 20), (b"c", 12), (b"c", 22)]


@pytest.mark.parametrize("lost", ["before", "after"])
def test_a_removal_whose_commit_is_lost_is_done_by_the_next_run(
    catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lost: str
) -> None:
    """First the commit of the removal is lost, then the commit of the new manifest behind it."""
    export = Export(tmp_path)
    export.to(catalog)
    export.remove(is_b)
    export.add()
    commit: Callable[..., Any] = SqlCatalog.commit_table
    for fails_at in (1, 2):
        calls = []

        def fails(*given: Any, fails_at: int = fails_at, calls: list[int] = calls) -> Any:
            calls.append(1)
            answer = commit(*given) if len(calls) < fails_at or lost == "after" else None
            if len(calls) >= fails_at:
                raise ConnectionError("the answer is lost")
            return answer

        with monkeypatch.context() as patched:
            patched.setattr(SqlCatalog, "commit_table", fails)
            # Once the first loop made its commit, only one is left: the second loop fails at none.
            with contextlib.suppress(Unavailable):
                export.to(catalog)
            rows = shown(catalog)
            assert {row for row in rows if row[1] >= 20 and not is_b(row)} >= {(b"a", 20)}
            assert len(rows) == len(set(rows))
    export.to(catalog)
    assert shown(catalog) == export.rows()
    assert export.to(catalog) == 0


def test_only_the_first_of_a_removal_and_another_commit_at_once_happens(
    catalog: Catalog, tmp_path: Path
) -> None:
    """A run that does not know the removal yet adds a manifest, with entries that are removed."""
    export = Export(tmp_path, count=1)
    export.to(catalog)
    old = Export(tmp_path)
    export.add()
    export.remove(is_b)

    def overtaken(made: Manifest) -> Sequence[str]:
        with opened(tmp_path) as other:
            export.to(other)
        return old.files(made)

    with pytest.raises(Conflict, match=r"another program changed table 'lake\.flights' meanwhile"):
        iceberg.add(catalog, NAME, old.manifests, overtaken)
    assert shown(catalog) == export.rows()
    with pytest.raises(Conflict, match="another run removed entries"):
        iceberg.add(catalog, NAME, old.manifests, old.files)
    assert export.to(catalog) == 0


def test_a_table_whose_files_others_replaced_is_named(catalog: Catalog, tmp_path: Path) -> None:
    export = Export(tmp_path)
    export.to(catalog)
    table = catalog.load_table(NAME)
    table.delete("seq >= 0")
    export.remove(is_b)
    with pytest.raises(Conflict, match=r"lacks 2 files of the export.*Drop the table"):
        export.to(catalog)
    catalog.drop_table(NAME)
    assert export.to(catalog) == 2
    assert shown(catalog) == export.rows()


def test_no_snapshot_names_the_replaced_files_once_the_table_has_left_them(
    catalog: Catalog, tmp_path: Path
) -> None:
    export = Export(tmp_path)
    export.to(catalog)
    export.remove(is_b)
    export.to(catalog)
    table = catalog.load_table(NAME)
    first = table.snapshots()[0].snapshot_id
    table.manage_snapshots().create_tag(first, "audit").commit()
    with pytest.raises(Conflict, match="the branch or tag 'audit' of the table holds"):
        iceberg.leave(catalog, NAME, "e", export.swaps)
    table.refresh()
    table.manage_snapshots().remove_tag("audit").commit()
    for _ in range(2):
        uuid = iceberg.leave(catalog, NAME, "e", export.swaps)
        assert uuid == str(table.metadata.table_uuid)
        assert metadata(tmp_path) == named(catalog)
    for location in export.swaps[0].gone:
        Path(location.removeprefix("file://")).unlink()
    table = catalog.load_table(NAME)
    assert len(table.snapshots()) == 1
    assert shown(catalog) == export.rows()
    gone = {name.encode() for name in export.swaps[0].gone}
    current = table.current_snapshot()
    assert current is not None
    for each in current.manifests(table.io):
        for entry in each.fetch_manifest_entry(table.io, discard_deleted=False):
            assert entry.data_file.file_path.encode() not in gone
    export.add()
    assert export.to(catalog) == 1
    assert shown(catalog) == export.rows()
