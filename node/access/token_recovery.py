"""Recover access to a cluster when the last administrator's token is lost.

`lognode token recover` draws a token and leaves a request with the token's digest in the data
directory of a stopped node. When that node starts, it has the controller commit the new token. So
the recovery needs the node's data directory and the user that the node runs as. Somebody who has
both can speak as the node already, and gains nothing here. The token is a metadata command like any
other: a majority of the controller commits it, and the audit log names the node.

A node deletes a request durably before it proposes the token, so that no request is used twice. A
request that stayed could bring back a token that has been revoked. For the same reason a request is
valid for an hour, whatever happens to copies of the directory.
"""

import contextlib
import json
import os
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ...client import tokens
from ...client.protocol.errors import InvalidArgument, LognodeError
from ...client.protocol.principal import check_principal_name
from ...client.protocol.private_files import write_private
from ...partitions.tokens import check_digest, first_token
from ..directory.data_directory import RECOVERY, locked

GOOD_MS: Final = 3_600_000
"""How long a request is valid after it was made."""
_STEP_MS: Final = 60_000
"""How far the machine's clock may have been set back since the request."""
_BYTES_MAX: Final = 4_096
_OTHERS: Final = 0o077


@dataclass(frozen=True, slots=True)
class Request:
    """A request for a token that allows everything and never expires. `until_ms`: milliseconds
    since 1970 after which the token is no longer proposed."""

    token_id: str
    digest: bytes
    principal: str
    until_ms: int

    def to_command(self, by: str) -> dict[str, Any]:
        """Return the fields of the command that creates the token; `by` is for the audit log."""
        return {**first_token(self.token_id, self.digest, self.principal), "by": by}


def ask(
    root: Path, principal: str, token: str, now_ms: int, keep: Callable[[], None] = lambda: None
) -> None:
    """Leave a request for the token in the data directory of a stopped node, durably.

    `keep` stores the token. It is called when only the disk can still make the request fail, and
    before the request is written, so that no token is created that nobody has. A request that the
    superuser makes belongs to the owner of the directory. Raises DirectoryInUse, InvalidArgument,
    Unavailable.
    """
    check_principal_name(principal)
    body = {
        "id": tokens.id_of(token), "digest": tokens.digest_of(token).hex(),
        "principal": principal, "until_ms": now_ms + GOOD_MS,
    }  # fmt: skip
    with locked(root):
        if not (root / "meta.mdb").exists():
            raise InvalidArgument(
                f"the node of {root} has never been part of a cluster; give the data "
                "directory of a node of the cluster", what="data",
            )  # fmt: skip
        keep()
        owner = (root / "lock").stat()
        write_private(root / RECOVERY, json.dumps(body).encode(), owner=owner)


def take(root: Path, now_ms: int) -> Request | None:
    """Take the request out of the data directory of this node, or return None without a request.

    Raises InvalidArgument for a request that cannot be used, which is deleted, and OSError when
    the file cannot be read or deleted: such a request is not used either.
    """
    path = root / RECOVERY
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        found = os.fstat(fd)
        data = os.read(fd, _BYTES_MAX) if stat.S_ISREG(found.st_mode) else b""
    finally:
        os.close(fd)
    path.unlink()
    directory = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
    if found.st_mode & _OTHERS or found.st_uid not in (0, os.geteuid()):
        raise _unusable("users other than the user of this node can write the request")
    request = _read(data)
    if not now_ms <= request.until_ms <= now_ms + GOOD_MS + _STEP_MS:
        raise _unusable(
            "the request is over an hour old, or from the future, by the clock of this machine"
        )
    return request


def _read(data: bytes) -> Request:
    with contextlib.suppress(ValueError, TypeError, KeyError, RecursionError, LognodeError):
        body = json.loads(data)
        token_id, until_ms = body["id"], body["until_ms"]
        if tokens.is_id(token_id) and type(until_ms) is int:
            digest = check_digest(bytes.fromhex(body["digest"]))
            return Request(token_id, digest, check_principal_name(body["principal"]), until_ms)
    raise _unusable("the content of the request is not from `lognode token recover`")


def _unusable(why: str) -> InvalidArgument:
    return InvalidArgument(
        f"the node dropped the request for a token in {RECOVERY}: {why}; stop the node and "
        "run `lognode token recover` again", what="recovery",
    )  # fmt: skip
