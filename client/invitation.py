"""Invitations: with what a new node proves that an operator wants it in the cluster.

An invitation is one line of text, `<id>.<secret>.<cluster>.<ca>`. The first two parts are drawn as
those of a client's token, and the metadata keeps their digest alone; the other two say where the
secret may go: the id of the cluster, and the key of the authority that signed the certificates of
its nodes. A joining node reads both before it dials anybody, and tells the secret to nobody else.
So whoever answers in the cluster's place learns nothing.

One node can use an invitation, once, before it expires. Compare the join tokens of Docker Swarm and
kubeadm, which carry the hash of the CA's key for the same reason.
"""

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from . import tokens
from .errors import InvalidArgument
from .private_files import read_private

if TYPE_CHECKING:
    from pathlib import Path  # it takes long to load

NO_CA: Final = "none"
"""In place of the authority's key, of a cluster without TLS."""
_TEXT: Final = r"([0-9a-f]{16}\.[A-Za-z0-9_-]{22,200})\.([0-9a-f]{32})\.([0-9a-f]{64}|none)"


class Invitation(NamedTuple):
    """What the text says."""

    token: str
    """`<id>.<secret>`. Nothing prints it."""
    cluster: str
    ca: str
    """SHA-256 of the authority's public key, in hexadecimal, or `NO_CA`."""

    @property
    def id(self) -> str:
        """What lists and logs call it."""
        return tokens.id_of(self.token)

    def __repr__(self) -> str:
        return f"Invitation({self.id}, cluster {self.cluster})"

    def text(self) -> str:
        """Return the line to hand over."""
        return ".".join(self)


def parse(text: str) -> Invitation:
    """Undo `Invitation.text`. Raises InvalidArgument; the error does not repeat the text."""
    match = re.fullmatch(_TEXT, text.strip())
    if match is None:
        raise InvalidArgument(
            f"the invitation has {len(text)} characters and is not of the form "
            "ID.SECRET.CLUSTER.CA; give the line that `lognode node invite` printed",
            what="invitation",
        )
    return Invitation(*match.groups())


def read_invitation(path: "Path") -> Invitation:
    """Return the invitation in a file that only its owner may read. Raises InvalidArgument."""
    return parse(read_private(path, "invitation").decode("utf-8", "replace"))
