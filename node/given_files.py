"""Files that a node is given by its configuration, besides that itself."""

import tomllib
from pathlib import Path

from ..client.errors import InvalidArgument
from ..client.private_files import read_private
from .addresses import split_address


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
    """The secret that the nodes of the cluster share. Raises InvalidArgument, also where others
    may read the file."""
    if path is None:
        return None
    secret = read_private(path, "secret file").strip()
    if len(secret) < 16:
        raise InvalidArgument(
            f"the secret in {path} has {len(secret)} bytes; give at least 16", what="secret_file"
        )
    return secret
