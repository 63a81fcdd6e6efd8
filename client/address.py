"""Addresses as users write them: `lognode://h1:4600,h2:4600`, or the same without the scheme.

`lognodes://` is the same with TLS; the files may follow: `?ca=FILE&cert=FILE&key=FILE`.
"""

from typing import Final, NamedTuple

from .errors import InvalidArgument
from .tls import Tls

SCHEME: Final = "lognode://"
TLS_SCHEME: Final = "lognodes://"
_FILES: Final = ("ca", "cert", "key")
default_port: Final = 4600


class Address(NamedTuple):
    """Where a node listens. `str` gives `host:port`, IPv6 hosts in brackets."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse(text: str) -> tuple[Address, ...]:
    """The addresses of a comma-separated list, each once, in order.

    Raises InvalidArgument that names the part at fault.
    """
    rest = text.removeprefix(SCHEME)
    if text.startswith(TLS_SCHEME):
        rest = text.removeprefix(TLS_SCHEME).partition("?")[0]
    if "://" in rest:
        scheme = rest.split("://", 1)[0]
        raise _bad(text, f"the scheme is {scheme!r}; write lognode://host:port")
    parts = [part.strip() for part in rest.rstrip("/").split(",")]
    if not any(parts):
        raise _bad(text, "there is no host; write lognode://host:port[,host:port...]")
    return tuple(dict.fromkeys(_parse_one(text, part) for part in parts))


def tls_of(text: str) -> Tls | None:
    """The TLS options of an address; None without TLS. Raises InvalidArgument."""
    if not text.startswith(TLS_SCHEME):
        return None
    _, mark, query = text.partition("?")
    if not mark:
        return Tls()
    from urllib.parse import parse_qsl  # for those who need it: it takes long to load

    try:
        pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=True)
    except ValueError:
        raise _bad(text, f"{query!r} is not ca=FILE&cert=FILE&key=FILE") from None
    files = dict(pairs)
    if len(files) < len(pairs) or not files.keys() <= set(_FILES) or not all(files.values()):
        raise _bad(text, f"{query!r} is not ca=FILE&cert=FILE&key=FILE, each once")
    return Tls(**files)


def parse_one(text: str) -> Address:
    """One `host:port`. Raises InvalidArgument."""
    return _parse_one(text, text.strip())


def _parse_one(text: str, part: str) -> Address:
    if part.startswith("["):
        host, bracket, port = part[1:].partition("]")
        if not bracket or (port and not port.startswith(":")):
            raise _bad(text, f"{part!r} is not [ipv6]:port")
        port = port[1:]
    else:
        host, _, port = part.partition(":")
        if ":" in port:
            raise _bad(text, f"{part!r} has several colons; write an IPv6 host in brackets")
    if not host:
        raise _bad(text, f"{part!r} has no host; write host:port")
    if any(c.isspace() or c in "/?#@" for c in host):
        raise _bad(text, f"{host!r} is not a host name")
    if not port:
        return Address(host, default_port)
    if not (port.isascii() and port.isdigit()) or not 0 < int(port) <= 65_535:
        raise _bad(text, f"{port!r} is not a port from 1 to 65535")
    return Address(host, int(port))


def _bad(text: str, reason: str) -> InvalidArgument:
    return InvalidArgument(f"bad address {text!r}: {reason}", what="address")
