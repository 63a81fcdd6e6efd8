"""Addresses, `host:port`: one rule for flags, files, the servers URL and the metadata.

A host is a DNS name, an IPv4 address, or an IPv6 address in brackets. A DNS name has labels of 1 to
63 ASCII letters, digits, hyphens and underscores, and at most 253 characters; it may end with one
dot (RFC 1035, 2.3.4). Only such a host can be resolved: for any other, Python's resolver raises
errors that are not an OSError.

A servers URL begins with `lognode://`, or with `lognodes://` for TLS. Files may follow:
`?ca=FILE&cert=FILE&key=FILE` for TLS, and `token=FILE`.
"""

import re
import socket
from typing import TYPE_CHECKING, Final, NamedTuple

from . import limits
from .errors import InvalidArgument
from .tls import Tls

if TYPE_CHECKING:
    from pathlib import Path  # this import takes long

SCHEME: Final = "lognode://"
TLS_SCHEME: Final = "lognodes://"
_TLS_FILES: Final = ("ca", "cert", "key")
_TOKEN_FILE: Final = "token"
default_port: Final = 4600
_ALLOWED: Final = "write a DNS name, an IPv4 address or an [IPv6] address"
_SHOWN_CHARS: Final = 100
"""The characters of a bad address that an error shows."""
_NAME: Final = re.compile(r"[A-Za-z0-9_.-]+", re.ASCII)
_NUMBERS: Final = re.compile(r"[.]*[0-9][0-9.]*", re.ASCII)
_PORT: Final = re.compile(r"[0-9]{1,5}", re.ASCII)
_SCOPE: Final = re.compile(r"[A-Za-z0-9_.-]{1,15}", re.ASCII)
"""The interface of a link-local IPv6 address, `fe80::1%eth0`."""


class Address(NamedTuple):
    """The address on which a node listens. `str` gives `host:port`, IPv6 hosts in brackets."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse(text: str) -> tuple[Address, ...]:
    """Return the addresses of a comma-separated list, each once, in order.

    Raises InvalidArgument that names the faulty part.
    """
    rest = text.removeprefix(SCHEME)
    if text.startswith((SCHEME, TLS_SCHEME)):
        rest = text.removeprefix(TLS_SCHEME).removeprefix(SCHEME).partition("?")[0]
    if "://" in rest:
        scheme = rest.split("://", 1)[0]
        raise _bad(text, f"the scheme is {_shown(scheme)}; write lognode://host:port")
    parts = [part.strip() for part in rest.rstrip("/").split(",")]
    if not any(parts):
        raise _bad(text, "the address has no host; write lognode://host:port[,host:port...]")
    return tuple(dict.fromkeys(_parse_one(text, part) for part in parts))


def tls_of(text: str) -> Tls | None:
    """Return the TLS options of an address; None without TLS. Raises InvalidArgument."""
    if not text.startswith(TLS_SCHEME):
        return None
    files = _files_of(text, (*_TLS_FILES, _TOKEN_FILE))
    return Tls(**{name: file for name, file in files.items() if name != _TOKEN_FILE})


def token_file_of(text: str) -> "Path | None":
    """Return the token file that an address names, or None. Raises InvalidArgument."""
    allowed = (*_TLS_FILES, _TOKEN_FILE) if text.startswith(TLS_SCHEME) else (_TOKEN_FILE,)
    file = _files_of(text, allowed).get(_TOKEN_FILE)
    from pathlib import Path

    return None if file is None else Path(file)


def _files_of(text: str, allowed: tuple[str, ...]) -> dict[str, str]:
    _, mark, query = text.partition("?")
    if not mark:
        return {}
    from urllib.parse import parse_qsl  # imported here because it takes long to load

    told = "&".join(f"{name}=FILE" for name in allowed)
    try:
        pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=True)
    except ValueError:
        raise _bad(text, f"{query!r} is not {told}; write only these options") from None
    files = dict(pairs)
    if len(files) < len(pairs) or not files.keys() <= set(allowed) or not all(files.values()):
        raise _bad(text, f"{query!r} is not {told}, each once")
    return files


def split_address(text: object, what: str = "address") -> Address:
    """Return the address of a text `host:port`, where flags and the metadata need both parts.

    Raises InvalidArgument, in which `what` names the text.
    """
    reason = "the address is not text"
    if isinstance(text, str):
        host, colon, port = text.rpartition(":")
        bracketed = host.startswith("[") and host.endswith("]")
        host = host[1:-1] if bracketed else host
        number = _port(port) if colon else None
        told = (
            _why_no_host(host, bracketed=bracketed)
            if number
            else "write a host, a colon and a port"
        )
        if number is not None and told is None:
            return Address(host, number)
        reason = told or reason
    raise InvalidArgument(
        f"{what} {_shown(text)} is not HOST:PORT with a port of 1 to 65535: {reason}", what=what
    )


def _parse_one(text: str, part: str) -> Address:
    bracketed = part.startswith("[")
    if bracketed:
        host, bracket, port = part[1:].partition("]")
        if not bracket or (port and not port.startswith(":")):
            raise _bad(text, f"{_shown(part)} is not [ipv6]:port")
        port = port[1:]
    else:
        host, _, port = part.partition(":")
        if ":" in port:
            raise _bad(text, f"{_shown(part)} has several colons; write an IPv6 host in brackets")
    if not host:
        raise _bad(text, f"{_shown(part)} has no host; write host:port")
    reason = _why_no_host(host, bracketed=bracketed)
    if reason is not None:
        raise _bad(text, f"{_shown(host)} is not a host name: {reason}")
    if not port:
        return Address(host, default_port)
    number = _port(port)
    if number is None:
        raise _bad(text, f"{_shown(port)} is not a port from 1 to 65535")
    return Address(host, number)


def _port(text: str) -> int | None:
    """Return the number of a port, or None for an invalid port."""
    if _PORT.fullmatch(text) is None or not 1 <= int(text) <= 65_535:
        return None
    return int(text)


def _why_no_host(host: str, *, bracketed: bool) -> str | None:
    """Return why the host is invalid, or None when it is valid."""
    if bracketed:
        address, percent, scope = host.partition("%")
        if percent and _SCOPE.fullmatch(scope) is None:
            return f"{_shown(scope)} is not an interface name of an IPv6 address"
        sound = _is_number(socket.AF_INET6, address)
        return None if sound else f"{_shown(host)} is not an IPv6 address"
    if ":" in host:
        return "the host has several colons; write an IPv6 address in brackets"
    if not host:
        return f"the host is missing; {_ALLOWED}"
    if _NAME.fullmatch(host) is None:
        return (
            "a character of the host is not allowed; ASCII letters, digits, `-`, `_` and "
            f"`.` are. {_ALLOWED}, and write a name with other letters in its xn-- form"
        )
    if _NUMBERS.fullmatch(host) is not None:
        return (
            None if _is_number(socket.AF_INET, host) else f"{_shown(host)} is not an IPv4 address"
        )
    return _why_no_name(host)


def _why_no_name(host: str) -> str | None:
    name = host.removesuffix(".")
    if len(name) > limits.host_name_chars_max:
        return (
            f"the host has {len(name)} characters; a DNS name has at most "
            f"{limits.host_name_chars_max}"
        )
    for label in name.split("."):
        if not label:
            return (
                "the host has an empty label: two dots in sequence, or a dot at its start; "
                f"{_ALLOWED}"
            )
        if len(label) > limits.host_label_chars_max:
            return (
                f"label {_shown(label)} of the host has {len(label)} characters; a label of "
                f"a DNS name has at most {limits.host_label_chars_max}"
            )
    return None


def _is_number(family: socket.AddressFamily, host: str) -> bool:
    try:
        socket.inet_pton(family, host)
    except (OSError, ValueError):  # ValueError: it has a zero byte or is not ASCII
        return False
    return True


def _shown(text: object) -> str:
    """Return the text in quotes, cut when it is long."""
    if isinstance(text, str) and len(text) > _SHOWN_CHARS:
        return f"{text[:_SHOWN_CHARS]!r}..."
    return repr(text) if isinstance(text, str) else f"of type {type(text).__name__}"


def _bad(text: str, reason: str) -> InvalidArgument:
    return InvalidArgument(f"bad address {_shown(text)}: {reason}", what="address")
