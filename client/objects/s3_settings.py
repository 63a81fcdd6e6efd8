"""Region, endpoint and credentials of an S3-compatible store.

Flags come first, then the environment, then the profile in the files of AWS (`AWS_PROFILE`, else
`default`). `s3_credentials` says which keys a store gets.
"""

import configparser
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from ..protocol.errors import InvalidArgument
from .s3_credentials import (
    CredentialProcess,
    Keys,
    in_environment,
    refuse_log_ins,
    static_keys,
    web_identity,
)

PATIENCE_S: Final = 90.0
"""How long a request and its repetitions may take together."""
_REGION: Final = "us-east-1"


@dataclass(frozen=True, slots=True)
class S3Settings:
    """How to reach a store. `endpoint` None: AWS itself. `ca`: certificates in PEM. `credentials`:
    keys as obstore takes them, or a program that prints keys; None: a web identity or the role of
    the machine. `identity`: the web identity of the profile as obstore takes it."""

    region: str = _REGION
    endpoint: str | None = None
    ca: bytes | None = None
    patience_s: float = PATIENCE_S
    credentials: Keys | CredentialProcess | None = field(default=None, repr=False)
    identity: Mapping[str, str] = field(default_factory=dict)


def settings(
    environment: Mapping[str, str], *, endpoint: str | None = None, region: str | None = None,
    patience_s: float = PATIENCE_S,
) -> S3Settings:  # fmt: skip
    """Return the settings. Raises InvalidArgument for a bad endpoint, for a file or a profile that
    is named and cannot be used, and for a profile that only the tools of AWS can follow."""
    name = environment.get("AWS_PROFILE") or "default"
    files = _profile(environment, name)
    found = endpoint or _first(environment, "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
    found = found or files.get("endpoint_url")
    credentials, identity = _credentials(environment, name, files)
    return S3Settings(
        region or _first(environment, "AWS_REGION", "AWS_DEFAULT_REGION")
        or files.get("region") or _REGION,
        None if found is None else _endpoint(found),
        _certificates(environment),
        patience_s,
        credentials,
        identity,
    )  # fmt: skip


def _first(environment: Mapping[str, str], *names: str) -> str | None:
    return next((environment[name] for name in names if environment.get(name)), None)


def _credentials(
    environment: Mapping[str, str], name: str, files: Mapping[str, str]
) -> tuple[Keys | CredentialProcess | None, dict[str, str]]:
    """Return what gives the keys, and the web identity."""
    if not in_environment(environment):
        refuse_log_ins(name, files)
        identity = web_identity(name, files)
        if identity:
            return None, identity
    keys = static_keys(environment, files)
    if keys is None and files.get("credential_process"):
        return CredentialProcess(name, files["credential_process"]), {}
    return keys, {}


def _profile(environment: Mapping[str, str], name: str) -> dict[str, str]:
    """Return the entries of the profile in both files; the file of credentials comes first."""
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
        section = name if name == "default" else prefix + name
        if parser.has_section(section):
            found |= dict(parser.items(section))
    if name != "default" and not found:
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
