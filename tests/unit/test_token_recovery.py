"""Requests for a token in a data directory: who can make one, and that none is used twice."""

import itertools
import json
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from metadata_log import Controller

from lognode.client import tokens
from lognode.client.protocol.errors import InvalidArgument, LognodeError
from lognode.client.protocol.private_files import write_private
from lognode.node import main
from lognode.node.access import token_recovery
from lognode.node.directory.data_directory import RECOVERY, DataDirectory, DirectoryInUse
from lognode.partitions import commands, proposals

NOW_MS = 1_700_000_000_000
HOUR_MS = 3_600_000
TOKEN = tokens.draw()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The data directory of a stopped node."""
    directory = DataDirectory(tmp_path / "data")
    directory.open()
    directory.close()
    directory.meta.touch()
    return directory.root


def test_a_request_has_the_digest_alone_and_is_private(root: Path) -> None:
    token_recovery.ask(root, "ops", TOKEN, NOW_MS)
    path = root / RECOVERY
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert TOKEN.partition(".")[2] not in path.read_text()
    DataDirectory(root).open()  # the node takes the file for its own


def test_a_request_is_taken_once(root: Path) -> None:
    assert token_recovery.take(root, NOW_MS) is None
    token_recovery.ask(root, "ops", TOKEN, NOW_MS)
    request = token_recovery.take(root, NOW_MS + HOUR_MS)
    assert request is not None
    assert (request.token_id, request.principal) == (tokens.id_of(TOKEN), "ops")
    assert tokens.is_token(TOKEN, request.digest)
    assert not (root / RECOVERY).exists()
    assert token_recovery.take(root, NOW_MS) is None


def test_the_later_of_two_requests_holds(root: Path) -> None:
    token_recovery.ask(root, "ops", tokens.draw(), NOW_MS)
    token_recovery.ask(root, "ops", TOKEN, NOW_MS)
    request = token_recovery.take(root, NOW_MS)
    assert request is not None
    assert request.token_id == tokens.id_of(TOKEN)


def test_a_request_that_cannot_be_taken_away_is_not_used(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It could be used again at the next start, when its token may be revoked."""
    token_recovery.ask(root, "ops", TOKEN, NOW_MS)

    def refused(*_: Any) -> None:
        raise OSError("no space")

    for place, name in ((Path, "unlink"), (os, "fsync")):
        with monkeypatch.context() as patch:
            patch.setattr(place, name, refused)
            with pytest.raises(OSError, match="no space"):
                token_recovery.take(root, NOW_MS)


@pytest.mark.parametrize("later_ms", [HOUR_MS + 1, 90 * HOUR_MS, -61_000, -HOUR_MS])
def test_a_request_of_another_hour_is_dropped(root: Path, later_ms: int) -> None:
    """Of a backup that was brought back, for instance."""
    token_recovery.ask(root, "ops", TOKEN, NOW_MS)
    with pytest.raises(InvalidArgument, match="the request is over an hour old"):
        token_recovery.take(root, NOW_MS + later_ms)
    assert not (root / RECOVERY).exists()


GOOD = {
    "id": tokens.id_of(TOKEN), "digest": tokens.digest_of(TOKEN).hex(), "principal": "ops",
    "until_ms": NOW_MS + HOUR_MS,
}  # fmt: skip


@pytest.mark.parametrize(
    "data",
    [
        b"", b"{", b"[]", b"7", b"null", b"\xff", b"[" * 3_000, json.dumps(GOOD).encode()[:-2],
        *(json.dumps({k: v for k, v in GOOD.items() if k != gone}).encode() for gone in GOOD),
        *(json.dumps({**GOOD, **wrong}).encode() for wrong in (
            {"id": "x"}, {"id": 7}, {"id": None}, {"digest": "00"}, {"digest": "zz"},
            {"digest": 5}, {"principal": ""}, {"principal": "a\nb"}, {"principal": []},
            {"until_ms": "soon"}, {"until_ms": 1.5}, {"until_ms": None},
        )),
        json.dumps({**GOOD, "more": "x" * 10_000}).encode(),
    ],
    ids=itertools.count(),
)  # fmt: skip
def test_a_malformed_request_is_dropped(root: Path, data: bytes) -> None:
    write_private(root / RECOVERY, data)
    with pytest.raises(InvalidArgument, match="recover` again"):
        token_recovery.take(root, NOW_MS)
    assert not (root / RECOVERY).exists()


def _readable(path: Path) -> None:
    path.chmod(0o640)


def _link(path: Path) -> None:
    os.replace(path, path.with_name("elsewhere"))
    path.symlink_to("elsewhere")


def _pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path, 0o600)


def _folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize("change", [_readable, _link, _pipe, _folder])
def test_a_request_of_somebody_else_is_not_used(root: Path, change: Callable[[Path], None]) -> None:
    token_recovery.ask(root, "ops", TOKEN, NOW_MS)
    change(root / RECOVERY)
    with pytest.raises((LognodeError, OSError)):
        token_recovery.take(root, NOW_MS)


@pytest.mark.skipif(os.geteuid() != 0, reason="only the superuser gives files away")
def test_the_request_of_the_superuser_belongs_to_the_user_of_the_node(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.chown(root / "lock", 4_711, 4_712)
    token_recovery.ask(root, "ops", TOKEN, NOW_MS)
    found = (root / RECOVERY).stat()
    assert (found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)) == (4_711, 4_712, 0o600)
    with pytest.raises(
        InvalidArgument, match="users other than the user of this node can write the request"
    ):
        token_recovery.take(root, NOW_MS)  # this process is not that user
    token_recovery.ask(root, "ops", TOKEN, NOW_MS)
    monkeypatch.setattr(os, "geteuid", lambda: 4_711)
    assert token_recovery.take(root, NOW_MS) is not None


def test_only_the_directory_of_a_stopped_node_gets_a_request(tmp_path: Path, root: Path) -> None:
    with pytest.raises(InvalidArgument, match="is not the data directory of a node"):
        token_recovery.ask(tmp_path, "ops", TOKEN, NOW_MS)
    with pytest.raises(InvalidArgument, match="principal"):
        token_recovery.ask(root, "a\nb", TOKEN, NOW_MS)
    directory = DataDirectory(root)
    directory.open()
    with pytest.raises(DirectoryInUse, match="stop the node"):
        token_recovery.ask(root, "ops", TOKEN, NOW_MS)
    directory.close()
    directory.meta.unlink()
    with pytest.raises(InvalidArgument, match="never been part"):
        token_recovery.ask(root, "ops", TOKEN, NOW_MS)
    assert not (root / RECOVERY).exists()


def test_the_command_makes_a_token_that_rules_for_ever_and_says_by_whom(root: Path) -> None:
    """Whatever it says of that is for the audit, and not part of the token."""
    cluster = Controller().nodes(1)
    cluster.do(
        "create_token", **token_recovery.Request("0" * 16, bytes(32), "a", 0).to_command("x")
    )
    token_recovery.ask(root, "ops", TOKEN, NOW_MS)
    request = token_recovery.take(root, NOW_MS)
    assert request is not None
    command = {"op": commands.CREATE_TOKEN, **request.to_command("recovery at n:1")}
    checked = proposals.checked(command, cluster.metadata.nodes)
    assert checked["by"] == "recovery at n:1"
    assert "by" not in proposals.checked(
        {name: value for name, value in command.items() if name != "by"}, cluster.metadata.nodes
    )
    assert "ok" in cluster.do(checked.pop("op"), **checked)
    record = cluster.metadata.tokens[tokens.id_of(TOKEN)]
    assert record.rules_for_ever
    assert (record.principal, record.digest) == ("ops", tokens.digest_of(TOKEN))


def test_the_verb_writes_the_token_where_it_is_told(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "token"
    assert main.main(["token", "recover", "--data", str(root), "--out", str(out)]) == 0
    shown = capsys.readouterr()
    token = tokens.read_token(out)
    assert shown.out.strip() == tokens.id_of(token)
    assert token not in shown.err
    assert json.loads((root / RECOVERY).read_text())["id"] == tokens.id_of(token)
    assert main.main(["token", "recover", "--data", str(root)]) == 0
    shown = capsys.readouterr()
    assert json.loads((root / RECOVERY).read_text())["id"] == tokens.id_of(shown.out.strip())
    assert main.main(["token", "recover"]) == 2
    assert main.main(["token", "recover", "--data", str(tmp_path)]) == 1
    unwritable = ["--out", str(tmp_path / "none" / "token")]
    (root / RECOVERY).unlink()
    assert main.main(["token", "recover", "--data", str(root), *unwritable]) == 1
    assert not (root / RECOVERY).exists(), "a token that nobody has is not asked for"
