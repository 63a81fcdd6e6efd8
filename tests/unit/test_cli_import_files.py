"""`lognode import` reads files: kinds, archives, missing keys, and bad rows by their place."""

import gzip
import json
import zipfile
from pathlib import Path

import pyarrow
import pytest
from pyarrow import parquet

from lognode.client.cli.import_files import Row, Source
from lognode.client.protocol.errors import InvalidArgument

CSV = 'tailnum,note\nN1,a\n,b\nNA,c\nN2,"d\ne"\n'


def rows(path: Path, key: str = "tailnum", missing: str | None = "unknown") -> list[Row]:
    source = Source(path, key=key, key_missing=missing)
    try:
        return list(source)
    finally:
        source.close()


def keys(found: list[Row]) -> list[bytes]:
    return [row.key for row in found]


def test_csv_in_file_order_with_missing_keys(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(CSV)
    found = rows(path)
    assert keys(found) == [b"N1", b"unknown", b"unknown", b"N2"]
    assert [row.number for row in found] == [1, 2, 3, 4]
    assert json.loads(found[3].value) == {"tailnum": "N2", "note": "d\ne"}


def test_NA_is_a_key_like_others_when_no_key_stands_for_missing_ones(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(CSV)
    found = rows(path, missing=None)
    assert keys(found) == [b"N1", b"", b"NA", b"N2"]
    assert found[1].error == "line 3: column 'tailnum' is empty; see --key-missing"


def test_gz_and_zip_hold_one_file(tmp_path: Path) -> None:
    with gzip.open(tmp_path / "a.csv.gz", "wt") as packed:
        packed.write(CSV)
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("inner.csv", CSV)
    plain = tmp_path / "a.csv"
    plain.write_text(CSV)
    assert rows(tmp_path / "a.csv.gz") == rows(tmp_path / "a.zip") == rows(plain)
    with zipfile.ZipFile(tmp_path / "a.zip", "a") as archive:
        archive.writestr("other.csv", CSV)
    with pytest.raises(InvalidArgument, match="holds 2 files; an archive must hold one file"):
        rows(tmp_path / "a.zip")


def test_malformed_csv_lines_are_named(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text('tailnum,note\nN1,a\nN2\nN3,x,y\nN4,"q"z\nN5,b\n')
    found = rows(path)
    assert [row.error for row in found] == [
        None,
        "line 3: the row has 1 fields; the header has 2",
        "line 4: the row has 3 fields; the header has 2",
        "line 5: ',' expected after '\"'",
        None,
    ]
    assert found[-1].number == 5, "numbers are positions in the file, also behind bad rows"


def test_a_field_may_be_as_long_as_a_value(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("tailnum,note\nN1," + "x" * 500_000 + "\n")
    assert len(rows(path)[0].value) > 500_000


def test_jsonl_values_become_strings(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(
        '{"tailnum": "N1", "n": 1, "t": true, "f": 1.5, "o": {"a": [1]}, "none": null}\n'
        '{"n": 2}\nnot json\n[1]\n{"tailnum": 7}\n'
    )
    found = rows(path)
    assert json.loads(found[0].value) == {
        "tailnum": "N1", "n": "1", "t": "true", "f": "1.5", "o": '{"a": [1]}', "none": "",
    }  # fmt: skip
    assert keys(found) == [b"N1", b"unknown", b"", b"", b"7"]
    assert found[2].error is not None
    assert found[2].error.startswith("line 3: the line is not JSON")
    assert found[3].error == "line 4: the line is not a JSON object"


def test_parquet(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    parquet.write_table(pyarrow.table({"tailnum": ["N1", None], "n": [1, 2]}), path)
    found = rows(path)
    assert keys(found) == [b"N1", b"unknown"]
    assert json.loads(found[1].value) == {"tailnum": "", "n": "2"}
    path.write_bytes(b"PAR1 but no more")
    with pytest.raises(InvalidArgument, match="is not Parquet"):
        rows(path)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", b"other\n1\n", "no column 'tailnum'; the columns are other"),
        ("a.csv", b"", "no column 'tailnum'; the columns are none"),
        ("a.csv", b"tailnum\n\xff\n", "is not UTF-8"),
        ("a.txt", b"x", "does not end with .csv, .jsonl or .parquet; give the format with --input"),
        ("a.csv.gz", b"not gzip", "cannot unpack a.csv"),
        ("a.zip", b"not a zip", "cannot read .*File is not a zip file"),
    ],
)
def test_files_that_cannot_be_read(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(InvalidArgument, match=message):
        rows(path)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="No such file or directory"):
        rows(tmp_path / "none.csv")


def test_a_truncated_archive_is_an_error_where_it_ends(tmp_path: Path) -> None:
    whole = gzip.compress(("tailnum\n" + "N1\n" * 100_000).encode(), mtime=0)
    path = tmp_path / "a.csv.gz"
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InvalidArgument, match="cannot unpack"):
        rows(path)


def test_progress_ends_at_one(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("tailnum\n" + "N1\n" * 50_000)
    source = Source(path, key="tailnum", key_missing=None)
    seen = [source.progress for _ in source]
    source.close()
    assert seen == sorted(seen)
    assert 0 < seen[0] < 1
    assert source.progress == 1.0
