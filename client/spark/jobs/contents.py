"""What an export has now: the files of its manifests, without the files that removals replaced.

The names of files are relative to the place, and tell the manifest: `data/MANIFEST-ATTEMPT/...`,
or `.../of=MANIFEST/...` for a file that a removal wrote. Entries that do not fit the declared
schema are in a directory beside, `data/MANIFEST-ATTEMPT-rejected/...`.
"""

import re
from collections.abc import Sequence
from functools import cached_property
from typing import Final, NamedTuple

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from lognode.client.spark.jobs import declared, manifest, removal
from lognode.client.spark.jobs.declared import Declared
from lognode.client.spark.jobs.manifest import Manifest, rejected_of
from lognode.client.spark.jobs.place import Place
from lognode.client.spark.jobs.removal import Removal
from lognode.client.spark.schema import source_schema

COLUMNS: Final = ("key", "value", "seq", "timestamp", "headers", "snapshot")
REASON: Final = pa.schema([("reason", pa.string())])
"""The column of entries that do not fit the declared schema."""
_SUFFIX: Final = ".parquet"
_MANIFEST: Final = r"(?:^data/|/of=)(\d{8})[-/]"
_DAY_US: Final = 86_400_000_000


class Swap(NamedTuple):
    """The files that a removal replaced, and the new files, with their manifests, as locations that
    other programs know."""

    number: int
    gone: dict[str, int]
    files: dict[str, int]


class Contents:
    """The manifests and the removals of a place, as they were when the object was made."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.manifests = manifest.all_of(place)
        self.removals = removal.all_of(place)
        self._gone = {name for made in self.removals for name in made.gone}

    @cached_property
    def declared(self) -> Declared | None:
        """The schema of the last manifest, which has the columns of all earlier schemas."""
        text = self.manifests[-1].schema if self.manifests else ""
        return declared.declared(text) if text else None

    def columns(self, *, rejected: bool) -> pa.Schema:
        """Return the columns beside those of entries."""
        if rejected:
            return REASON
        return pa.schema([]) if self.declared is None else self.declared.schema

    def names(self, made: Manifest) -> list[str]:
        """Return the files of a manifest."""
        folders = made.data, rejected_of(made.data)
        own = [name for folder in folders for name in self.place.files(folder, _SUFFIX)]
        own += self._replacing.get(made.number, ())
        return [name for name in own if name not in self._gone]

    @cached_property
    def _replacing(self) -> dict[int, list[str]]:
        """The files that removals wrote, by manifest."""
        found: dict[int, list[str]] = {}
        for made in self.removals:
            for folder in (made.data, rejected_of(made.data)):
                for name in self.place.files(folder, _SUFFIX):
                    found.setdefault(manifest_of(name), []).append(name)
        return found

    def locations(self, made: Manifest, *, rejected: bool = False) -> list[str]:
        """Return the locations of the files of a manifest, for one of the two tables."""
        names = self.names(made)
        return [self.place.location(name) for name in names if is_rejected(name) == rejected]

    def changed(self, made: Manifest) -> int:
        """Return the number of the last removal that took entries of the manifest, or 0."""
        return max(
            (each.number for each in self.removals
             if any(manifest_of(name) == made.number for name in each.gone)),
            default=0,
        )  # fmt: skip

    def swap(self, made: Removal, *, rejected: bool = False) -> Swap:
        """Return what a removal did, for one of the two tables."""
        files = self.place.files(rejected_of(made.data) if rejected else made.data, _SUFFIX)
        gone = [name for name in made.gone if is_rejected(name) == rejected]
        return Swap(made.number, self._of_manifests(gone), self._of_manifests(files))

    def read(
        self, spark: SparkSession, names: Sequence[str], more: pa.Schema | None = None
    ) -> DataFrame:
        """Return the entries of some files, with `more` columns and the column `day`."""
        schema = StructType()
        for field in (*source_schema(COLUMNS), *(from_arrow_schema(more) if more else ())):
            schema.add(field.name, field.dataType, True)  # files of earlier runs lack some columns
        if not names:
            return spark.createDataFrame([], schema).withColumn("day", _day())
        # The option switches off that Spark finds partitions in the paths.
        reader = spark.read.option("recursiveFileLookup", "true").schema(schema)
        found = reader.parquet(*map(self.place.path, names))
        marked = found.withColumn("snapshot", f.coalesce("snapshot", f.lit(False)))
        return marked.withColumn("day", _day())

    def _of_manifests(self, names: Sequence[str]) -> dict[str, int]:
        return {self.place.location(name): manifest_of(name) for name in names}


def manifest_of(name: str) -> int:
    """Return the number of the manifest to which a file belongs."""
    found = re.search(_MANIFEST, name)
    assert found is not None, "only exports write files there"
    return int(found[1])


def is_rejected(name: str) -> bool:
    """Return whether a file has entries that do not fit the declared schema."""
    folder = name.split("/")[1]
    return folder.endswith(rejected_of(""))


def file_name() -> Column:
    """Return the name of the file from which Spark reads a row, relative to the place."""
    # Spark encodes the path of the place as a URI. What follows the last /data/ is ours.
    return f.concat(f.lit("data/"), f.substring_index(f.input_file_name(), "/data/", -1))


def of_manifest(name: Column) -> Column:
    """Return the manifest of a file, as a directory of a removal has it."""
    return f.regexp_extract(name, _MANIFEST, 1)


def _day() -> Column:
    """Return the day of the timestamp in UTC, whatever the time zone of the session is."""
    days = f"unix_micros(`timestamp`) div {_DAY_US}"
    return f.expr(f"date_from_unix_date(cast({days} as int))").alias("day")
