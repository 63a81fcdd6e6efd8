"""The store that a text names: `s3://BUCKET/PREFIX`, or else a directory."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from ..protocol.errors import InvalidArgument
from .directory import DirectoryStore
from .s3 import S3ObjectStore
from .s3_settings import PATIENCE_S, settings
from .store import ObjectStore

_S3: Final = "s3://"


def opened(
    place: str, *, endpoint: str | None = None, region: str | None = None,
    patience_s: float | None = None, environment: Mapping[str, str] | None = None,
) -> ObjectStore:  # fmt: skip
    """Return the store of a place. Nothing is read or written yet.

    `endpoint`, `region` and `patience_s` are of a store in S3: see `S3Settings`. Raises
    InvalidArgument.
    """
    if place.startswith(_S3):
        bucket, _, prefix = place.removeprefix(_S3).partition("/")
        found = settings(
            os.environ if environment is None else environment,
            endpoint=endpoint, region=region,
            patience_s=PATIENCE_S if patience_s is None else patience_s,
        )  # fmt: skip
        return S3ObjectStore(bucket, prefix.strip("/"), found)
    if "://" in place:
        raise InvalidArgument(
            f"{place!r} is not a store; give a directory or s3://BUCKET/PREFIX", what="store"
        )
    given = {"--endpoint": endpoint, "--region": region, "--store-timeout": patience_s}
    for flag, value in given.items():
        if value is not None:
            raise InvalidArgument(
                f"{flag} was given, and {place} is a directory; the flag is for "
                "s3://BUCKET/PREFIX. Leave the flag out",
                what="store",
            )
    return DirectoryStore(Path(place))
