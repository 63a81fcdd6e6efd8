"""Files that the configuration of a node names."""

import logging
import tomllib
from pathlib import Path

from ...client.protocol.address import split_address
from ...client.protocol.errors import InvalidArgument
from ...client.protocol.private_files import read_private

log = logging.getLogger("lognode.files")


class DialMap:
    """Where to dial nodes that are not reached at their advertised addresses, as behind a proxy.

    The map is a file that may change while the node runs.
    """

    def __init__(self, path: Path | None) -> None:
        """Read the map from the file; None: an empty map. Raises InvalidArgument."""
        self._path = path
        self._targets = _dial_map(path)

    def resolve(self, address: str) -> str:
        """Return the address to dial for an advertised address."""
        return self._targets.get(address, address)

    def read_again(self) -> bool:
        """Read the file again and return whether it is valid; an invalid file changes nothing."""
        try:
            self._targets = _dial_map(self._path)
        except InvalidArgument as error:
            log.error("the node keeps the old dial map: %s", error)
            return False
        log.info("dial map read", extra={"fields": {"entries": len(self._targets)}})
        return True


def _dial_map(path: Path | None) -> dict[str, str]:
    if path is None:
        return {}
    try:
        with open(path, "rb") as file:
            body = tomllib.load(file)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InvalidArgument(f"cannot read dial map {path}: {error}", what="dial_map") from None
    for advertised, target in body.items():
        split_address(advertised, f"dial map {path}: address")
        split_address(str(target), f"dial map {path}: target")
    return {advertised: str(target) for advertised, target in body.items()}


def read_secret(path: Path | None) -> bytes | None:
    """Return the secret that the nodes of the cluster share.

    Raises InvalidArgument, also when other users may read the file.
    """
    if path is None:
        return None
    secret = read_private(path, "secret file").strip()
    if len(secret) < 16:
        raise InvalidArgument(
            f"the secret in {path} has {len(secret)} bytes; give at least 16 bytes",
            what="secret_file",
        )
    return secret
