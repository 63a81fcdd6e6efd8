"""TLS 1.3 for both ends of a connection: contexts, one connection's channel, errors in words.

A `Channel` is TLS without a socket: it takes bytes of the network and returns bytes for the
network. `FrameTransport` wraps it, so a connection in its TLS handshake is counted, timed out and
closed like any other. A failure is reported in one line that names the remedy, and the other side
gets an alert with the reason.

Session tickets and early data are off: a resumed session would keep an identity that the node's
files no longer confirm.
"""

import contextlib
import os
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from . import http_instead
from .errors import InvalidArgument, LognodeError, RemoteProtocolError, Unauthorized
from .private_files import read_private

if TYPE_CHECKING:  # these imports take long
    from pathlib import Path

    from .certificate import Certificate

_ALERT: Final = 0x15
_HANDSHAKE: Final = 0x16
_HTTP: Final = ord("H")
"""The first byte of an answer in HTTP."""
_RECORD_BYTES: Final = 16_384
"""The most plain bytes of one TLS record."""
_SLICE_BYTES: Final = 1 << 16
"""The most bytes given to OpenSSL at once: its buffers keep the largest size that they ever had."""
_UNKNOWN_CA: Final = frozenset({2, 18, 19, 20, 21})
"""X509_verify_cert's codes for a chain that does not end in the trusted certificates."""
_EXPIRED: Final = 10
_NOT_YET: Final = 9
_OTHER_HOST: Final = frozenset({62, 64})
_PURPOSE: Final = 26

_ALERTS: Final = {
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": (
        "it requires a client certificate: give a certificate and its key (--tls-cert "
        "and --tls-key; `cert` and `key` of lognode.Tls)"
    ),
    "TLSV1_ALERT_UNKNOWN_CA": (
        "its listener does not trust the CA of this side's certificate: use a certificate of a "
        "CA in its --tls-ca"
    ),
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "this side's certificate has expired: renew the certificate",
    "SSLV3_ALERT_UNSUPPORTED_CERTIFICATE": "this side's certificate is not for this use: "
    "a node needs a node's certificate, a client a client's",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "it does not accept this side's certificate",
    "SSLV3_ALERT_BAD_CERTIFICATE": "it does not accept this side's certificate",
    "TLSV1_ALERT_PROTOCOL_VERSION": "it does not speak TLS 1.3: upgrade the other side",
    "SSLV3_ALERT_HANDSHAKE_FAILURE": "the two sides have no cipher in common",
}
"""The meanings of the other side's alerts."""


@dataclass(frozen=True, slots=True)
class Tls:
    """The TLS options of a client.

    `ca`: a PEM file of the trusted CAs; None: the CAs of the operating system. `cert` and `key`:
    PEM files of the client's certificate, with intermediate ones, and of its private key, which
    only the owner may read; both or none. Changed files are read again.
    """

    ca: str | os.PathLike[str] | None = None
    cert: str | os.PathLike[str] | None = None
    key: str | os.PathLike[str] | None = None


class DialTls(NamedTuple):
    """TLS for one dialled connection.

    The certificate has to name the dialled host, if the context requires that. `check` gets the
    verified certificate of the other side and raises LognodeError to refuse it.
    """

    context: ssl.SSLContext
    check: Callable[["Certificate"], None] | None = None

    def channel(self, host: str) -> "Channel":
        """Return the channel of one connection to the host."""
        checked = host if self.context.check_hostname else None
        return Channel(self.context, server_side=False, host=checked, check=self.check)


class ClientTls:
    """The TLS of one client: its files, and the context built from them."""

    def __init__(self, options: Tls) -> None:
        """Raises InvalidArgument for unusable files, and for a certificate without its key."""
        if (options.cert is None) != (options.key is None):
            given, missing = ("key", "cert") if options.cert is None else ("cert", "key")
            raise InvalidArgument(
                f"TLS has a {given} and no {missing}; a client certificate needs both: give "
                f"`{missing}` too", what=missing,
            )  # fmt: skip
        from pathlib import Path

        self._ca, self._cert, self._key = (
            None if path is None else Path(path) for path in (options.ca, options.cert, options.key)
        )
        self._made: DialTls | None = None
        self._stamp: object = None
        self.current()

    def current(self) -> DialTls:
        """Return the TLS for the next connection, from the newest usable files."""
        stamp = files_stamp(self._ca, self._cert, self._key)
        if self._made is None or stamp != self._stamp:
            try:
                self._made = DialTls(dial_context(self._ca, self._cert, self._key))
            except InvalidArgument:
                if self._made is None:
                    raise
            self._stamp = stamp
        return self._made


def files_stamp(*paths: "Path | None") -> tuple[tuple[int, ...] | None, ...]:
    """Return a stamp that differs once one of the files was written or replaced."""
    return tuple(map(_stamp, paths))


def _stamp(path: "Path | None") -> tuple[int, ...] | None:
    if path is None:
        return None
    try:
        found = os.stat(path)
    except OSError:
        return ()
    return (found.st_mtime_ns, found.st_size, found.st_ino)


def dial_context(
    ca: "Path | bytes | None", cert: "Path | None", key: "Path | None", *, check_host: bool = True
) -> ssl.SSLContext:
    """Return the context of a dialling side. `ca`: a PEM file, or certificates in DER.

    Raises InvalidArgument that names the faulty file.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = check_host
    _harden(context)
    _trust(context, ca)
    if cert is not None and key is not None:
        _identify(context, cert, key)
    return context


def listen_context(
    ca: "Path", cert: "Path", key: "Path", clients: ssl.VerifyMode
) -> ssl.SSLContext:
    """Return the context of a listening side; `clients`: whether they need a certificate.

    Raises InvalidArgument that names the faulty file.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _harden(context)
    context.num_tickets = 0
    context.verify_mode = clients
    _trust(context, ca)
    _identify(context, cert, key)
    return context


def _harden(context: ssl.SSLContext) -> None:
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_TICKET
    # Every certificate in the CA file is trusted, also an intermediate CA.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN


def _trust(context: ssl.SSLContext, ca: "Path | bytes | None") -> None:
    if ca is None:
        context.load_default_certs()
        return
    if isinstance(ca, bytes):
        context.load_verify_locations(cadata=ca)
        return
    try:
        context.load_verify_locations(ca)
    except ssl.SSLError:
        raise InvalidArgument(
            f"CA file {ca} contains no certificate; give a PEM file of CA certificates",
            what="tls_ca",
        ) from None
    except OSError as error:
        raise InvalidArgument(
            f"cannot read CA file {ca}: {error.strerror}; check the path", what="tls_ca"
        ) from None


def _identify(context: ssl.SSLContext, cert: "Path", key: "Path") -> None:
    read_private(key, "TLS key")
    try:
        context.load_cert_chain(cert, key, password=_no_password)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise InvalidArgument(
                f"TLS key {key} does not belong to certificate {cert}; give the key of this "
                "certificate", what="tls_key",
            ) from None  # fmt: skip
        raise InvalidArgument(
            f"cannot use certificate {cert} with key {key}: {error.reason or error}; give PEM "
            "files", what="tls_cert",
        ) from None  # fmt: skip
    except OSError as error:
        raise InvalidArgument(
            f"cannot read certificate {cert}: {error.strerror}; check the path", what="tls_cert"
        ) from None


def _no_password() -> str:
    raise InvalidArgument(
        "the TLS key is encrypted, and no terminal is there for its password; store the key "
        "without a password, readable only by its owner", what="tls_key",
    )  # fmt: skip


class Channel:
    """The TLS of one connection. `receive` and `seal` take bytes and return bytes.

    `binding` identifies the connection to both ends, and a relay between them does not have it: the
    fingerprint of the acceptor's certificate (RFC 5929, tls-server-end-point).
    """

    def __init__(
        self,
        context: ssl.SSLContext,
        *,
        server_side: bool,
        host: str | None = None,
        own: "Certificate | None" = None,
        check: Callable[["Certificate"], None] | None = None,
    ) -> None:
        self.server_side = server_side
        self.secured = False
        """Whether the handshake is done, and the other side verified as far as required."""
        self.ended = False
        """Whether the other side has announced the end of its data."""
        self.certificate: Certificate | None = None
        """The verified certificate of the other side; None for a client that sent none."""
        self.binding = b"" if own is None else own.fingerprint
        self._host = host
        self._check = check
        self._seen = False
        self._dropped = False
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._object = _wrap(context, self._incoming, self._outgoing, server_side, host)

    def begin(self) -> bytes:
        """Return the first bytes for the network: none on the listening side."""
        if not self.server_side:
            self._shake_hands()
        return self._outgoing.read()

    def receive(self, data: bytes | memoryview) -> bytes:
        """Take bytes of the network; return the plain bytes that they complete.

        Raises LognodeError when the channel has failed; `outgoing` then returns the alert.
        """
        if not self._seen:
            self._look(data[0])
        parts: list[bytes] = []
        view = memoryview(data)
        for at in range(0, 0 if self.ended else len(data), _SLICE_BYTES):
            self._incoming.write(view[at : at + _SLICE_BYTES])
            if self.secured or self._shake_hands():
                self._read(parts)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _read(self, parts: list[bytes]) -> None:
        """Append the available plain bytes to `parts`."""
        while not self.ended and (self._incoming.pending or self._object.pending()):
            try:
                part = self._object.read(_RECORD_BYTES)
            except ssl.SSLWantReadError:
                break
            except ssl.SSLError as error:
                raise explained(error, self._host) from None
            if not part:
                self.ended = True
                break
            parts.append(part)

    def outgoing(self) -> bytes:
        """Return the network bytes that carry no data: handshake, alerts, key updates."""
        return self._outgoing.read() if self._outgoing.pending else b""

    def seal(self, data: bytes | bytearray | memoryview) -> bytes:
        """Return the network bytes that carry the plain bytes. Call only once `secured`."""
        parts = []
        view = memoryview(data)
        for at in range(0, len(data), _SLICE_BYTES):
            self._object.write(view[at : at + _SLICE_BYTES])
            parts.append(self._outgoing.read())
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def end(self) -> bytes:
        """Return the network bytes that announce the end of our data."""
        if self.secured:
            with contextlib.suppress(ssl.SSLError):  # nobody waits for the answer
                self._object.unwrap()
        return self.outgoing()

    def drop(self) -> None:
        """Free OpenSSL's memory, about 50 KiB: the connection is closed. `certificate` and
        `binding` stay. The call is idempotent."""
        if self._dropped:
            return
        self._dropped = self.ended = True
        self.secured = False
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        del self._object

    def _look(self, first: int) -> None:
        self._seen = True
        if first == _HANDSHAKE or (first == _ALERT and not self.server_side):
            return
        if self.server_side:
            raise NotTls(
                "this listener speaks only TLS 1.3: use lognodes:// instead of lognode://, "
                "or give the CA of the cluster with --tls-ca"
            )
        if first == _HTTP:
            raise http_instead.dialled_http()
        raise RemoteProtocolError(
            "the listener does not speak TLS: use lognode:// instead of lognodes:// and no "
            "TLS options, or start the node with --tls-cert, --tls-key and --tls-ca"
        )

    def _shake_hands(self) -> bool:
        """Continue the handshake; return whether it is done."""
        try:
            self._object.do_handshake()
        except ssl.SSLWantReadError:
            return False
        except ssl.SSLError as error:
            raise explained(error, self._host) from None
        der = self._object.getpeercert(binary_form=True)
        if der is not None:
            from .certificate import parse

            try:
                self.certificate = parse(der)
            except ValueError as error:
                raise Unauthorized(f"the certificate cannot be read: {error}") from None
            if not self.server_side:
                self.binding = self.certificate.fingerprint
            if self._check is not None:
                self._check(self.certificate)
        self.secured = True
        return True


class NotTls(RemoteProtocolError):
    """A dialler's first byte is not TLS: it may understand a plain answer."""


def _wrap(
    context: ssl.SSLContext,
    incoming: ssl.MemoryBIO,
    outgoing: ssl.MemoryBIO,
    server_side: bool,
    host: str | None,
) -> ssl.SSLObject:
    try:
        return context.wrap_bio(incoming, outgoing, server_side, server_hostname=host)
    except ValueError as error:
        raise InvalidArgument(f"TLS cannot check the host {host!r}: {error}") from None


def explained(error: ssl.SSLError, host: str | None) -> LognodeError:
    """Return an error that describes the failure and the remedy in one line."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return Unauthorized(_unverified(error, host))
    reason = error.reason or str(error)
    meaning = _ALERTS.get(reason)
    if meaning is not None:
        return Unauthorized(f"the other side ended the TLS handshake: {meaning}")
    if reason in ("PEER_DID_NOT_RETURN_A_CERTIFICATE",):
        return Unauthorized("the other side sent no certificate, and this listener requires one")
    if reason in ("UNSUPPORTED_PROTOCOL", "WRONG_SSL_VERSION", "WRONG_VERSION_NUMBER"):
        return RemoteProtocolError("the other side does not speak TLS 1.3")
    if "BAD_RECORD_MAC" in reason or "BAD_DECRYPT" in reason:
        return RemoteProtocolError("bytes changed on the way: a TLS record fails its check")
    words = reason.replace("_", " ").lower()
    return RemoteProtocolError(f"TLS failed: {words}")


def _unverified(error: ssl.SSLCertVerificationError, host: str | None) -> str:
    code = error.verify_code
    if code == _EXPIRED:
        return "the other side's certificate has expired: renew that certificate"
    if code == _NOT_YET:
        return "the other side's certificate is not valid yet: compare the clocks of both machines"
    if code in _UNKNOWN_CA:
        return (
            "this side does not trust the CA of the other side's certificate: give the CA "
            "of the cluster with --tls-ca (`ca` of lognode.Tls)"
        )
    if code in _OTHER_HOST or "mismatch" in (error.verify_message or "").lower():
        return (
            f"the other side's certificate is not for host {host!r}: use an address in the "
            "certificate, or make a certificate with this host (`lognode ca node --host`)"
        )
    if code == _PURPOSE:
        return (
            "the other side's certificate is not for this use: a node needs a node's certificate, "
            "a client a client's"
        )
    return f"this side refuses the other side's certificate: {error.verify_message or error.reason}"
