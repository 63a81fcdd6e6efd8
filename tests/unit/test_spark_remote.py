"""The address of a server of Spark Connect, and the files that a job shares with the server."""

from pathlib import Path

import pytest

from lognode.client.protocol.errors import InvalidArgument, Unavailable
from lognode.client.spark.jobs import remote, shared


def test_the_option_comes_before_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_REMOTE", raising=False)
    assert remote.address(None, None) is None
    assert remote.address("sc://h9:15002/;token=x", None) == "sc://h9:15002/;token=x"
    monkeypatch.setenv("SPARK_REMOTE", "sc://h8")
    assert remote.address(None, None) == "sc://h8"
    assert remote.address("sc://h9", None) == "sc://h9"
    assert remote.address(None, "local[2]") is None
    with pytest.raises(InvalidArgument, match="--remote and --master are given"):
        remote.address("sc://h9", "local[2]")


@pytest.mark.parametrize("text", ["h9:15002", "local", "sc://", "sc://h9:99999999", "http://h9"])
def test_other_addresses_are_refused(text: str) -> None:
    with pytest.raises(InvalidArgument, match="is not the address of a server of Spark Connect"):
        remote.address(text, None)


def test_a_server_that_does_not_answer_is_named_without_its_token() -> None:
    with pytest.raises(Unavailable, match=r"answers at sc://127\.0\.0\.1:1: .*refused") as told:
        remote.check("sc://127.0.0.1:1/;token=secret", 5)
    assert "secret" not in str(told.value)


def test_a_directory_is_a_path_or_a_uri_of_this_machine(tmp_path: Path) -> None:
    for root in (str(tmp_path), f"{tmp_path}/", f"file://{tmp_path}", f"file:{tmp_path}",
                 f"file://localhost{tmp_path}", f"{tmp_path}/lake/.."):  # fmt: skip
        assert shared.SharedFiles(root).root == f"file://{tmp_path}"
    for root in ("hdfs://h/lake", "s3a://bucket/lake", "file://h9/lake", "s3://b"):
        with pytest.raises(InvalidArgument, match="is not a directory of this machine"):
            shared.SharedFiles(root)


def test_checksums_of_hadoop_are_not_listed_and_leave_with_their_file(tmp_path: Path) -> None:
    files = shared.SharedFiles(str(tmp_path))
    assert (files.names("data"), files.below("data")) == ([], [])
    (tmp_path / "data" / "a=1").mkdir(parents=True)
    for name in ("data/a=1/x.parquet", "data/.y.crc", "data/a=1/.x.parquet.crc"):
        (tmp_path / name).write_bytes(b"1")
    assert files.names("data") == ["a=1"]
    assert files.below("data") == ["data/a=1/x.parquet"]
    files.remove("data/a=1/x.parquet")
    assert list((tmp_path / "data" / "a=1").iterdir()) == []
    files.remove("data")
    files.remove("data")
    assert list(tmp_path.iterdir()) == []


def test_a_file_is_created_once(tmp_path: Path) -> None:
    files = shared.SharedFiles(str(tmp_path))
    assert files.create("manifests/1.json", b"one")
    assert not files.create("manifests/1.json", b"two")
    assert files.read("manifests/1.json") == b"one"
    assert files.location("manifests/1.json") == f"file://{tmp_path}/manifests/1.json"
