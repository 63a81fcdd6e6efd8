"""Invitations: a new node's proof that an operator wants it in the cluster.

An invitation is one line of text, `<id>.<secret>.<cluster>.<ca>.<checksum>`. The first two parts
are drawn like those of a client's token, and the metadata keeps only their digest. The next two
parts say where the secret may go: the id of the cluster, and the key of the authority that signed
the certificates of its nodes. A joining node sends the secret to nobody else. The checksum is the
CRC-32 of all parts before it, so the node finds a typing error before it connects anywhere.

One node can use an invitation, once, before it expires. The join tokens of Docker Swarm and kubeadm
carry the hash of the CA's key for the same reason.
"""

import binascii
import re
from typing import TYPE_CHECKING, Final, NamedTuple

from . import tokens
from .protocol.errors import InvalidArgument
from .protocol.private_files import read_private

if TYPE_CHECKING:
    from pathlib import Path  # this import takes long

NO_CA: Final = "none"
"""Stands for the authority's key in a cluster without TLS."""
_TEXT: Final = r"([0-9a-f]{16}\.[A-Za-z0-9_-]{22,200})\.([0-9a-f]{32})\.([0-9a-f]{64}|none)"
_PARTS: Final = 5
_ADVICE: Final = "copy the whole line that `lognode node invite` printed"


class Invitation(NamedTuple):
    """The parts of an invitation."""

    token: str
    """`<id>.<secret>`. Nothing prints it."""
    cluster: str
    ca: str
    """SHA-256 of the authority's public key, in hexadecimal, or `NO_CA`."""

    @property
    def id(self) -> str:
        """The id of the invitation in lists and logs."""
        return tokens.id_of(self.token)

    def __repr__(self) -> str:
        return f"Invitation({self.id}, cluster {self.cluster})"

    def text(self) -> str:
        """Return the line to hand over."""
        body = ".".join(self)
        return f"{body}.{_checksum(body)}"


def parse(text: str) -> Invitation:
    """Undo `Invitation.text`. Raises InvalidArgument; the error does not repeat the text."""
    line = text.strip()
    body, _, checksum = line.rpartition(".")
    if line.count(".") != _PARTS - 1:
        raise InvalidArgument(
            f"the invitation has {len(line)} characters and is not of the form "
            f"ID.SECRET.CLUSTER.CA.CHECKSUM; {_ADVICE}", what="invitation",
        )  # fmt: skip
    match = re.fullmatch(_TEXT, body)
    if match is None or checksum != _checksum(body):
        raise InvalidArgument(
            "the checksum of the invitation does not match its text: characters were "
            f"changed or lost; {_ADVICE}", what="invitation",
        )  # fmt: skip
    return Invitation(*match.groups())


def _checksum(body: str) -> str:
    return f"{binascii.crc32(body.encode('utf-8', 'replace')):08x}"


def read_invitation(path: "Path") -> Invitation:
    """Return the invitation in a file that only its owner may read. Raises InvalidArgument."""
    return parse(read_private(path, "invitation").decode("utf-8", "replace"))
