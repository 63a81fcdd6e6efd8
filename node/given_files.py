"""Files that a node is given by its configuration, besides that itself."""

import tomllib
from pathlib import Path

from ..client.address import split_address
from ..client.errors import InvalidArgument


def read_dial_map(path: Path | None) -> dict[str, str]:
    """Per advertised address the one to dial instead. Raises InvalidArgument."""
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
    """The secret that the nodes of the cluster share. Raises InvalidArgument."""
    if path is None:
        return None
    try:
        secret = path.read_bytes().strip()
    except OSError as error:
        raise InvalidArgument(
            f"cannot read secret file {path}: {error.strerror}", what="secret_file"
        ) from None
    if len(secret) < 16:
        raise InvalidArgument(
            f"the secret in {path} has {len(secret)} bytes; give at least 16", what="secret_file"
        )
    return secret
