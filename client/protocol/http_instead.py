"""Recognise HTTP on a port for frames, and a port for HTTP that was dialled for frames.

The first bytes of HTTP, read as the header of a frame, name a length far over every limit.
"""

from typing import Final

from .errors import LognodeError, RemoteProtocolError

_ANSWER: Final = b"HTTP/"
_METHODS: Final = tuple(
    f"{method} ".encode() for method in ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
)
_REQUESTED: Final = (
    "an HTTP request came to a port that does not speak HTTP: use the address of the node's --http "
    "(default port 4680)"
)
_TEXT: Final = (
    b"This port speaks the protocol of lognode's clients and nodes, not HTTP. HTTP is at the "
    b"address of the node's --http (default port 4680).\n"
)


def recognised(begin: bytes) -> RemoteProtocolError | None:
    """Return the error for a stream that begins with these 8 bytes, None if they are not HTTP."""
    if begin.startswith(_ANSWER):
        return dialled_http()
    if begin.startswith(_METHODS):
        return RemoteProtocolError(_REQUESTED)
    return None


def dialled_http() -> RemoteProtocolError:
    """Return the error of a dialler whose other side answers in HTTP."""
    return RemoteProtocolError(
        "the port answers HTTP: give the address of the node's --listen (default port 4600), not "
        "of its --http"
    )


def answer(error: LognodeError) -> bytes:
    """Return the answer that an HTTP client understands, b"" for an error of another kind."""
    if error.message != _REQUESTED:
        return b""
    return (
        b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\n"
        b"Content-Length: %d\r\nConnection: close\r\n\r\n%b" % (len(_TEXT), _TEXT)
    )
