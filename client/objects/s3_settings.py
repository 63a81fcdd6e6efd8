"""Region, endpoint and credentials of an S3-compatible store.

Flags come first, then the environment, then the profile in the files of AWS (`AWS_PROFILE`, else
`default`). Without keys in any of them, obstore asks the machine for credentials: a web identity, a
container's role or an instance's role.
"""

import configparser
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from ..protocol.errors import InvalidArgument

PATIENCE_S: Final = 90.0
"""How long a request and its repetitions may take together."""
_REGION: Final = "us-east-1"
_KEYS: Final = {
    "access_key_id": "aws_access_key_id",
    "secret_access_key": "aws_secret_access_key",
    "token": "aws_session_token",
}
"""Names in obstore, and in the files of AWS."""


@dataclass(frozen=True, slots=True)
class S3Settings:
    """How to reach a store. `endpoint` None: AWS itself. `ca`: certificates in PEM. `credentials`:
    as obstore takes them; None: those of the machine."""

    region: str = _REGION
    endpoint: str | None = None
    ca: bytes | None = None
    patience_s: float = PATIENCE_S
    credentials: Mapping[str, str | None] | None = field(default=None, repr=False)


def settings(
    environment: Mapping[str, str], *, endpoint: str | None = None, region: str | None = None,
    patience_s: float = PATIENCE_S,
) -> S3Settings:  # fmt: skip
    """Return the settings. Raises InvalidArgument for a bad endpoint, and for a file or a profile
    that is named and cannot be used."""
    files = _profile(environment)
    found = endpoint or _first(environment, "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
    found = found or files.get("endpoint_url")
    return S3Settings(
        region or _first(environment, "AWS_REGION", "AWS_DEFAULT_REGION")
        or files.get("region") or _REGION,
        None if found is None else _endpoint(found),
        _certificates(environment),
        patience_s,
        _credentials(environment, files),
    )  # fmt: skip


def _first(environment: Mapping[str, str], *names: str) -> str | None:
    return next((environment[name] for name in names if environment.get(name)), None)


def _credentials(
    environment: Mapping[str, str], files: Mapping[str, str]
) -> dict[str, str | None] | None:
    """Return the keys of one source: keys of two sources never mix."""
    lower = {name.lower(): value for name, value in environment.items()}
    source = lower if lower.get("aws_access_key_id") else files
    if not source.get("aws_access_key_id"):
        return None
    if not source.get("aws_secret_access_key"):
        raise InvalidArgument(
            "aws_access_key_id has no aws_secret_access_key beside it. Give both", what="store"
        )
    return {name: source.get(key) or None for name, key in _KEYS.items()} | {"expires_at": None}


def _profile(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the entries of the profile in both files; the file of credentials comes first."""
    name = environment.get("AWS_PROFILE")
    home = Path(environment["HOME"]) if environment.get("HOME") else Path.home()
    places = (
        (environment.get("AWS_CONFIG_FILE") or home / ".aws" / "config", "profile "),
        (environment.get("AWS_SHARED_CREDENTIALS_FILE") or home / ".aws" / "credentials", ""),
    )
    found: dict[str, str] = {}
    for place, prefix in places:
        parser = configparser.ConfigParser(interpolation=None, strict=False)
        try:
            parser.read(place, "utf-8")
        except (configparser.Error, UnicodeDecodeError, OSError) as error:
            why = str(error).splitlines()[0]
            raise InvalidArgument(
                f"{place} is not a readable file of AWS settings: {why}. Correct the file",
                what="store",
            ) from None
        section = "default" if name is None or name == "default" else prefix + name
        if parser.has_section(section):
            found |= dict(parser.items(section))
    if name is not None and name != "default" and not found:
        raise InvalidArgument(
            f"AWS_PROFILE names the profile {name!r}; neither {places[0][0]} nor {places[1][0]} "
            "has this profile. Name another profile",
            what="store",
        )
    return found


def _endpoint(text: str) -> str:
    parts = urlsplit(text)
    try:
        sound = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        sound = False
    if not sound or parts.username or parts.query or parts.fragment or not _is_printable(text):
        raise InvalidArgument(
            f"{text!r} is not the URL of an endpoint; write https://HOST or http://HOST:PORT",
            what="endpoint",
        )
    return text.rstrip("/")


def _is_printable(text: str) -> bool:
    return text.isascii() and text.isprintable() and " " not in text


def _certificates(environment: Mapping[str, str]) -> bytes | None:
    name = environment.get("AWS_CA_BUNDLE")
    if not name:
        return None
    try:
        return Path(name).read_bytes()
    except OSError as error:
        raise InvalidArgument(
            f"AWS_CA_BUNDLE names {name}, which is not readable: {error.strerror}. Name a file "
            "with certificates in PEM",
            what="store",
        ) from None
