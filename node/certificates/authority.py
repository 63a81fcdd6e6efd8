"""Tell the authorities of a CA file apart by their keys.

A CA file holds several authorities while a cluster changes from one to the next. An invitation
names one authority: that of the certificate of the node that made the invitation. The joining node
trusts only this authority until it has joined.
"""

import ssl
from pathlib import Path

from ...client.protocol import certificate as names
from ...client.protocol.errors import InvalidArgument, LognodeError
from ...client.protocol.tls import Channel, dial_context, listen_context


def signer_of(ca: Path, cert: Path, key: Path) -> str:
    """Return the key of the first authority in the CA file that the node's certificate leads to.

    Raises InvalidArgument for files that cannot be used.
    """
    found = _authorities(ca)
    listen = listen_context(ca, cert, key, ssl.CERT_NONE)
    for authority, ders in found.items():
        if _leads_to(listen, b"".join(ders)):
            return authority
    raise InvalidArgument(
        f"CA file {ca} contains no authority that signed certificate {cert}; give the CA "
        "file of the cluster", what="tls_ca",
    )  # fmt: skip


def only(ca: Path, authority: str) -> bytes:
    """Return the certificates of the CA file with this key, in DER.

    Raises InvalidArgument, with the keys in the file, if the file has no such certificate.
    """
    found = _authorities(ca)
    if authority not in found:
        raise InvalidArgument(
            f"the invitation is of a cluster whose CA has the key {authority}, but CA file "
            f"{ca} has {', '.join(found)}; give the CA file of that cluster with --tls-ca, "
            "or an invitation to this cluster", what="invitation",
        )  # fmt: skip
    return b"".join(found[authority])


def shake_hands(acceptor: Channel, dialler: Channel) -> None:
    """Do a whole TLS handshake between two channels of one node. Raises LognodeError."""
    data = dialler.begin()
    while not acceptor.secured:
        acceptor.receive(data)
        back = acceptor.outgoing()
        if back:
            dialler.receive(back)
        data = dialler.outgoing()


def _leads_to(listen: ssl.SSLContext, trusted: bytes) -> bool:
    """Return whether a dialler that trusts only these certificates accepts the listener."""
    dial = dial_context(trusted, None, None, check_host=False)
    try:
        shake_hands(Channel(listen, server_side=True), Channel(dial, server_side=False))
    except LognodeError:
        return False
    return True


def _authorities(ca: Path) -> dict[str, list[bytes]]:
    """Return the certificates of the file in DER, by their keys, in the order of the file."""
    found: dict[str, list[bytes]] = {}
    try:
        for der in names.ders(ca.read_text("utf-8", "replace")):
            found.setdefault(names.parse(der).key, []).append(der)
    except OSError as error:
        raise InvalidArgument(
            f"cannot read CA file {ca}: {error.strerror}; check the path", what="tls_ca"
        ) from None
    except ValueError as error:
        raise InvalidArgument(f"CA file {ca} is not valid: {error}", what="tls_ca") from None
    return found
