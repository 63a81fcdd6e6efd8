"""The fields of an X.509 certificate: its key, its validity, and the names in it.

Python's `ssl` verifies certificates and hides their keys. This module reads the few fields that
lognode needs from the DER bytes (RFC 5280). It verifies nothing: OpenSSL has already verified a
peer's certificate, and a handshake of a node with itself verifies the node's own.

Certificates name lognode's nodes and clients by URIs among their alternative names:

    lognode://cluster/<cluster>/node/<node>         <node>: a name, or in digits a node id
    lognode://cluster/<cluster>/client/<client>
"""

import binascii
import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from .errors import InvalidArgument

name_chars_max: Final = 64
"""The name of a cluster, a node or a client in a certificate."""

_SEQUENCE: Final = 0x30
_VERSION: Final = 0xA0
_EXTENSIONS: Final = 0xA3
_UTC_TIME: Final = 0x17
_URI_NAME: Final = 0x86
_ALTERNATIVE_NAMES: Final = b"\x55\x1d\x11"
_COMMON_NAME: Final = b"\x55\x04\x03"
_NAME_PATTERN: Final = rf"[A-Za-z0-9][A-Za-z0-9._-]{{0,{name_chars_max - 1}}}"
# Patterns are compiled at their first use: most programs that import the SDK never use them.
_URI: Final = rf"lognode://cluster/({_NAME_PATTERN})/(node|client)/({_NAME_PATTERN})"
_ID: Final = r"[0-9a-f]{32}"
_PEM: Final = r"-----BEGIN CERTIFICATE-----\s*([A-Za-z0-9+/=\s]+?)-----END CERTIFICATE-----"


@dataclass(frozen=True, slots=True)
class Certificate:
    """One certificate. Times are seconds since 1970."""

    fingerprint: bytes
    """SHA-256 of the whole certificate."""
    key: str
    """SHA-256 of the public key (of its SubjectPublicKeyInfo), in hexadecimal: the identity of
    the holder, which the next certificate for the same key keeps."""
    not_before: int
    not_after: int
    common_name: str
    uris: tuple[str, ...]

    def nodes(self) -> list[tuple[str, str]]:
        """The (cluster, node) pairs that the certificate names."""
        return self._named("node")

    def clients(self) -> list[tuple[str, str]]:
        """The (cluster, client) pairs that the certificate names."""
        return self._named("client")

    @property
    def holder(self) -> str:
        """The identity of the holder: `client app`, `node n1`, or a common name."""
        for kind, found in (("client", self.clients()), ("node", self.nodes())):
            for _, name in found:
                return f"{kind} {name}"
        return f"name {self.common_name}" if self.common_name else f"key {self.key}"

    def clusters(self) -> set[str]:
        """The clusters that the certificate names, in a node's or a client's URI."""
        return {cluster for cluster, _ in (*self.nodes(), *self.clients())}

    def _named(self, kind: str) -> list[tuple[str, str]]:
        found = (re.fullmatch(_URI, uri) for uri in self.uris)
        return [(match[1], match[3]) for match in found if match and match[2] == kind]


def check_name(name: str, what: str) -> str:
    """Return the name if it may stand in a certificate's URI. Raises InvalidArgument."""
    if not re.fullmatch(_NAME_PATTERN, name):
        raise InvalidArgument(
            f"{what} {name!r} is not allowed in a certificate; use 1 to {name_chars_max} letters, "
            "digits, dots, dashes or underscores, and begin with a letter or a digit",
            what=what,
        )
    return name


def node_uri(cluster: str, node: str) -> str:
    """Return the URI that names a node of a cluster."""
    return f"lognode://cluster/{cluster}/node/{node}"


def client_uri(cluster: str, client: str) -> str:
    """Return the URI that names a client of a cluster."""
    return f"lognode://cluster/{cluster}/client/{client}"


def is_cluster_id(cluster: str) -> bool:
    """Return whether a cluster in a certificate is given by its id, not by a name."""
    return re.fullmatch(_ID, cluster) is not None


def from_pem(text: str) -> list[Certificate]:
    """Return the certificates of a PEM file, in order. Raises ValueError."""
    return list(map(parse, ders(text)))


def ders(text: str) -> list[bytes]:
    """Return the DER bytes of the certificates of a PEM file, in order. Raises ValueError."""
    try:
        return [binascii.a2b_base64(match[1]) for match in re.finditer(_PEM, text)]
    except binascii.Error as error:
        raise ValueError(f"PEM block that is not base64: {error}") from None


def parse(der: bytes) -> Certificate:
    """Return the certificate in DER bytes. Raises ValueError for bytes that are not a
    certificate."""
    try:
        return _parse(der)
    except (IndexError, UnicodeDecodeError, StopIteration) as error:
        raise ValueError(f"not a certificate: {error!r}") from None


def _parse(der: bytes) -> Certificate:
    whole = _expect(der, _SEQUENCE)
    body = _elements(_expect(whole, _SEQUENCE))
    tag, _, _ = next(body)
    if tag == _VERSION:
        next(body)  # the serial number
    next(body)  # the algorithm of the signature
    next(body)  # the name of the issuer
    validity = list(_elements(next(body)[1]))
    subject = next(body)[1]
    public_key = next(body)[2]
    uris: list[str] = []
    for tag, content, _ in body:
        if tag == _EXTENSIONS:
            uris += _uris(_expect(content, _SEQUENCE))
    return Certificate(
        fingerprint=hashlib.sha256(der).digest(),
        key=hashlib.sha256(public_key).hexdigest(),
        not_before=_seconds(*validity[0][:2]),
        not_after=_seconds(*validity[1][:2]),
        common_name=_common_name(subject),
        uris=tuple(uris),
    )


def _elements(data: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """Yield the tag, the content and the whole bytes of each element."""
    at = 0
    while at < len(data):
        tag, length, first = data[at], data[at + 1], at + 2
        if length & 0x80:
            count = length & 0x7F
            if not 1 <= count <= 4:
                raise ValueError(
                    f"the certificate has a length field of {count} bytes, which is not allowed"
                )
            length = int.from_bytes(data[first : first + count], "big")
            first += count
        end = first + length
        if end > len(data):
            raise ValueError("the certificate ends too early")
        yield tag, data[first:end], data[at:end]
        at = end


def _expect(data: bytes, tag: int) -> bytes:
    """Return the content of the first element, which must have that tag."""
    for found, content, _ in _elements(data):
        if found == tag:
            return content
        break
    raise ValueError(f"the certificate lacks the element {tag:#x}")


def _seconds(tag: int, content: bytes) -> int:
    """Return the seconds of a UTCTime or a GeneralizedTime."""
    text = content.decode("ascii")
    if tag == _UTC_TIME:
        text = ("20" if int(text[:2]) < 50 else "19") + text
    match = re.fullmatch(r"(\d{4})(\d\d)(\d\d)(\d\d)(\d\d)(\d\d)Z", text)
    if match is None:
        raise ValueError(f"the certificate has the time {text!r}, which is not valid")
    import calendar  # imported here because it takes long to load

    return calendar.timegm(tuple(map(int, match.groups())))


def _common_name(subject: bytes) -> str:
    for _, names, _ in _elements(subject):
        for _, name, _ in _elements(names):
            (_, kind, _), (_, value, _) = list(_elements(name))[:2]
            if kind == _COMMON_NAME:
                return value.decode("utf-8", "replace")
    return ""


def _uris(extensions: bytes) -> Iterator[str]:
    for _, extension, _ in _elements(extensions):
        parts = list(_elements(extension))
        if parts and parts[0][1] == _ALTERNATIVE_NAMES:
            for tag, content, _ in _elements(_expect(parts[-1][1], _SEQUENCE)):
                if tag == _URI_NAME:
                    yield content.decode("ascii")
