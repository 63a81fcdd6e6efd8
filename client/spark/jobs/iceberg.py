"""An Iceberg table of an export: the files stay where the export wrote them.

Each manifest is one commit, which adds the files of the manifest, and sets the id of the export and
the number of the manifest among the table's properties. So a manifest is in the table whole or not
at all. A later run adds the manifests that the table does not have, also after maintenance has
removed snapshots of the table. The properties of the snapshot have the vector too.

The removals that the table does not have are one commit before that, which replaces files. Then the
manifests are added as they are after the removals. A run that ends between the two commits leaves a
table without the newer manifests, and without the removed entries.
"""

import argparse
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lognode.client.protocol.errors import (
    Conflict,
    InvalidArgument,
    LognodeError,
    Unavailable,
    Unsupported,
)
from lognode.client.spark.jobs import iceberg_files
from lognode.client.spark.jobs.contents import Swap
from lognode.client.spark.jobs.iceberg_files import (
    export_property,
    manifest_property,
    removal_property,
)
from lognode.client.spark.jobs.manifest import Manifest
from lognode.client.spark.jobs.removal import Removal

if TYPE_CHECKING:  # an optional library
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table

Files = Callable[[Manifest], Sequence[str]]
"""Returns the locations of the Parquet files of a manifest."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the table."""
    parser.add_argument(
        "--iceberg", metavar="NAMESPACE.TABLE",
        help="Iceberg table that gets the files of the export too; a missing table is created",
    )  # fmt: skip
    parser.add_argument(
        "--catalog", metavar="NAME", default="default",
        help="catalog of the table, from PyIceberg's configuration (default)",
    )  # fmt: skip
    parser.add_argument(
        "--catalog-property", metavar="KEY=VALUE", action="append", default=[],
        help="property of the catalog, as uri=sqlite:////lake/catalog.db; repeat the option for "
             "several properties, and leave secrets to PyIceberg's configuration",
    )  # fmt: skip


def opened(options: argparse.Namespace) -> "Catalog":
    """Return the catalog that the options name, which has the namespace of the table.

    Raises InvalidArgument, Unsupported without PyIceberg, and Unavailable.
    """
    namespace, dot, name = options.iceberg.rpartition(".")
    if not (namespace and dot and name):
        raise InvalidArgument(
            f"--iceberg is {options.iceberg!r}; give NAMESPACE.TABLE, as lake.flights",
            what="iceberg",
        )
    try:
        from pyiceberg.catalog import load_catalog
    except ImportError as error:
        raise Unsupported(
            f"--iceberg needs PyIceberg, which does not load here ({error}). Run pip install "
            "'lognode[iceberg]'"
        ) from None
    try:
        catalog = load_catalog(options.catalog, **dict(map(_property, options.catalog_property)))
        catalog.create_namespace_if_not_exists(namespace)
    except InvalidArgument:
        raise
    except Exception as error:  # each kind of catalog has its own errors
        raise Unavailable(
            f"catalog {options.catalog!r} cannot be used: {_line(error)}. Check "
            "--catalog, --catalog-property and PyIceberg's configuration"
        ) from None
    return catalog


def add(
    catalog: "Catalog", name: str, manifests: Sequence[Manifest], files: Files, *,
    removals: Sequence[Removal] = (), swap: Callable[[Removal], Swap] | None = None,
    columns: pa.Schema | None = None,
    register: Callable[[str], object] = lambda uuid: None,
) -> int:  # fmt: skip
    """Commit the removals, and each manifest, that the table does not have; return how many
    manifests these are.

    `removals`: all removals of the export, in order; `swap` tells their files. `columns`: those
    of the files beside the columns of entries; the table gets what it lacks. `register` is
    called with the table's UUID before the table gets files. Raises InvalidArgument for a table of
    something else, Conflict when another program changed the table meanwhile, and Unavailable.
    """
    if not manifests:
        return 0
    with _errors(name, f"the export is complete, and table {name!r} has not got all of the export"):
        table = _table(catalog, name, manifests[0].export)
        register(str(table.metadata.table_uuid))
        iceberg_files.widen(table, columns)
        done = iceberg_files.has(table, removal_property)
        if done > len(removals):
            raise Conflict(
                f"another run removed entries from table {name!r} meanwhile. Run the export again"
            )
        if swap is not None and removals[done:]:
            iceberg_files.swap(table, [swap(made) for made in removals[done:]])
        last = iceberg_files.has(table, manifest_property)
        for made in manifests[last:]:
            iceberg_files.append(table, made, files(made))
    return len(manifests[last:])


def leave(catalog: "Catalog", name: str, export: str, swaps: Sequence[Swap]) -> str:
    """Make the table leave the files that these removals replaced: no snapshot names them any
    more. Return the table's UUID.

    Raises the errors of `add`.
    """
    with _errors(name, f"old snapshots of table {name!r} may still have removed entries"):
        table = _table(catalog, name, export)
        iceberg_files.leave(table, {location for each in swaps for location in each.gone})
    return str(table.metadata.table_uuid)


@contextmanager
def _errors(name: str, state: str) -> Iterator[None]:
    """Turn the errors of libraries into errors of lognode, in one line."""
    from pyiceberg.exceptions import CommitFailedException

    try:
        yield
    except CommitFailedException as error:
        raise Conflict(
            f"another program changed table {name!r} meanwhile: {_line(error)}. Run the export "
            "again"
        ) from None
    except LognodeError:
        raise
    except Exception as error:  # each kind of catalog and of store has its own errors
        raise Unavailable(f"{state}: {_line(error)}. Run the export again") from None


def _table(catalog: "Catalog", name: str, export: str) -> "Table":
    """Return the table of the export, which is created if it is missing."""
    from pyiceberg.exceptions import NoSuchTableError

    try:
        table = catalog.load_table(name)
    except NoSuchTableError:
        schema, partitions = _layout()
        own = {export_property: export, manifest_property: "0", "format-version": "2",
               removal_property: "0"}  # fmt: skip
        table = catalog.create_table(name, schema, partition_spec=partitions, properties=own)
    found = table.properties.get(export_property)
    if found != export:
        has = "is not of an export" if found is None else f"is of the export {found}"
        raise InvalidArgument(
            f"table {name!r} {has}; the export of --out is {export}. Give another table",
            what="iceberg",
        )
    return table


def _layout() -> tuple[Any, Any]:
    """Return the schema of an export and its partitions by day."""
    from pyiceberg import types as t
    from pyiceberg.partitioning import PartitionField, PartitionSpec
    from pyiceberg.schema import Schema
    from pyiceberg.transforms import DayTransform

    header = t.StructType(
        t.NestedField(8, "key", t.BinaryType()), t.NestedField(9, "value", t.BinaryType())
    )
    schema = Schema(
        t.NestedField(1, "key", t.BinaryType()),
        t.NestedField(2, "value", t.BinaryType()),
        t.NestedField(3, "seq", t.LongType()),
        t.NestedField(4, "timestamp", t.TimestamptzType()),
        t.NestedField(5, "headers", t.ListType(7, header, element_required=False)),
        t.NestedField(6, "snapshot", t.BooleanType()),
    )
    day = PartitionField(source_id=4, field_id=1000, transform=DayTransform(), name="day")
    return schema, PartitionSpec(day)


def _property(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not (key and equals):
        raise InvalidArgument(
            f"--catalog-property is {text!r}; give KEY=VALUE", what="catalog-property"
        )
    return key, value


def _line(error: Exception) -> str:
    """Return the first line of an error of a library, with its kind."""
    text = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {text[0]}"
