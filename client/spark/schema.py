"""The columns of the source and of the sink, and the libraries that they need."""

import importlib.metadata
from typing import Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from ..protocol.errors import InvalidArgument, Unsupported
from .options import COLUMNS

_HEADER: Final = StructType(
    [StructField("key", BinaryType(), False), StructField("value", BinaryType(), False)]
)
_TYPES: Final[dict[str, DataType]] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "log": StringType(),
    "seq": LongType(),
    "timestamp": TimestampType(),
    "headers": ArrayType(_HEADER, False),
    "rangeStart": BinaryType(),
    "snapshot": BooleanType(),
}
_SINK: Final[dict[str, DataType | None]] = {
    "key": None, "value": None, "headers": None, "log": StringType(), "snapshot": BooleanType(),
    "expect": LongType(),
}  # fmt: skip
"""The columns of a write; None: more than one type is allowed."""
_NULLABLE: Final = ("value", "headers")
_NEEDED: Final = (("pyspark", (4, 2), None), ("pyarrow", (18,), None), ("pandas", (2,), (3,)))
"""The first supported version, and the first version that is too new."""


def source_schema(columns: tuple[str, ...] = COLUMNS) -> StructType:
    """Return the columns to read, in that order."""
    return StructType([StructField(name, _TYPES[name], name in _NULLABLE) for name in columns])


def check_source_schema(given: StructType, columns: tuple[str, ...]) -> None:
    """Raise InvalidArgument unless the schema is the source's own."""
    own = source_schema(columns)
    if [(f.name, f.dataType.typeName()) for f in given] != [
        (f.name, f.dataType.typeName()) for f in own
    ]:
        raise InvalidArgument(
            f"the schema is {given.simpleString()}; lognode's schema is "
            f"{own.simpleString()}: leave .schema() out, and give the option columns",
            what="schema",
        )


def check_sink_schema(given: StructType, log: str | None) -> None:
    """Raise InvalidArgument for rows that cannot be records. `log`: the option; None: not given."""
    found = {field.name: field.dataType for field in given}
    missing = [name for name in ("key", "value") if name not in found]
    others = [name for name in found if name not in _SINK]
    if missing or others:
        what = f"no column {missing[0]!r}" if missing else f"a column {others[0]!r}"
        raise InvalidArgument(
            f"the rows have {what}; a write to a log takes key and value, both binary or "
            "string, and optionally log, headers, snapshot and expect. Select these columns",
            what="schema",
        )
    if log is None and "log" not in found:
        raise InvalidArgument(
            "option log: is not given, and the rows have no column log; write "
            ".option('log', ...), or give every row its log",
            what="log",
        )
    for name in ("key", "value"):
        _check_bytes(name, found[name])
    for name, wanted in _SINK.items():
        if wanted is not None and not isinstance(found.get(name, wanted), type(wanted)):
            raise InvalidArgument(
                f"the column {name} is {found[name].simpleString()}; cast the column to "
                f"{wanted.simpleString()}",
                what=name,
            )
    headers = found.get("headers")
    if headers is not None:
        item = headers.elementType if isinstance(headers, ArrayType) else None
        if not isinstance(item, StructType) or item.fieldNames() != ["key", "value"]:
            raise InvalidArgument(
                f"the column headers is {headers.simpleString()}; cast the column "
                "to array<struct<key:binary,value:binary>>",
                what="headers",
            )
        for field in item:
            _check_bytes(f"headers.{field.name}", field.dataType)


def check_libraries() -> None:
    """Raise Unsupported when a needed library is missing, too old or too new."""
    for name, least, below in _NEEDED:
        wanted = f"{name}>={'.'.join(map(str, least))}"
        wanted += "" if below is None else f",<{'.'.join(map(str, below))}"
        try:
            found = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found = "missing"
        version = tuple(int(part) for part in found.split(".")[:2] if part.isdigit())
        if version < least or (below is not None and version >= below):
            raise Unsupported(
                f"{name} is {found}; lognode's data source needs {wanted}: run pip install "
                "'lognode[spark]' for the driver and for the workers"
            )


def _check_bytes(name: str, kind: DataType) -> None:
    if not isinstance(kind, BinaryType | StringType):
        raise InvalidArgument(
            f"the column {name} is {kind.simpleString()}; cast it to binary or string", what=name
        )
