"""Show a cluster that an empty node may join, after checking that the cluster is the right one.

The secret of an invitation is only for the nodes of the cluster that made it. So a joining node
first checks the certificate of the node that answers: it must lead to the authority that the
invitation names, whatever else the CA file trusts. Then it compares the cluster that this node
names. Only then does the node send the secret, inside TLS. Without TLS, the secret goes only to
this machine, or to any machine if --insecure accepts that others read it.
"""

from typing import Any

from ...client.invitation import NO_CA, Invitation, read_invitation
from ...client.loopback import is_loopback
from ...client.protocol.errors import InvalidArgument, Unauthorized, Unavailable
from ...client.protocol.tls import DialTls
from ..certificates.tls import NodeTls
from ..config import Config


class Admission:
    """The proof that this node may join. `tls` is that of the joining connections, or None without
    TLS."""

    def __init__(self, config: Config, tls: NodeTls | None) -> None:
        """Raises InvalidArgument for an invitation that cannot be used here, and for a file that
        others may read."""
        file = config.invitation
        self._invitation = None if file is None else read_invitation(file)
        self._insecure = config.insecure == "on"
        if self._invitation is not None:
            _check_both_have_tls(self._invitation, tls)
        if tls is None:
            self.tls: DialTls | None = None
        elif self._invitation is None:
            self.tls = tls.dialling(None)
        else:
            self.tls = tls.dialling_under(self._invitation.ca)

    @property
    def invitation_id(self) -> str:
        """The id of the invitation, "" without an invitation."""
        return "" if self._invitation is None else self._invitation.id

    def shown_to(self, host: str, cluster: str | None) -> dict[str, Any]:
        """Return the fields of JOIN that admit this node, for a node at `host` of that `cluster`.

        Raises Unavailable for a node without a cluster, Unauthorized for a node of another cluster,
        and InvalidArgument if others could read the secret.
        """
        invitation = self._invitation
        if invitation is None:
            return {}
        if cluster is None:
            raise Unavailable(
                f"the node at {host} is of no cluster yet; the node waits to found a cluster"
            )
        if cluster != invitation.cluster:
            raise Unauthorized(
                f"the node at {host} is of cluster {cluster:.64}, but the invitation is of "
                f"cluster {invitation.cluster}; give --join a node of that cluster"
            )
        if self.tls is None and not self._insecure and not is_loopback(host):
            raise InvalidArgument(
                f"invitation {invitation.id} would go to {host} without TLS, and others "
                "could read its secret; use TLS, or accept the risk with "
                "--insecure", what="invitation",
            )  # fmt: skip
        return {"invitation": invitation.token}

    def refused(self, address: str, error: Unauthorized) -> Unauthorized:
        """Return the error of a failed connection, with the authority that this node trusts."""
        if self._invitation is None or self.tls is None:
            return error
        return Unauthorized(
            f"{address}: {error.message} (invitation {self._invitation.id} trusts only the CA "
            f"with the key {self._invitation.ca})", **error.fields,
        )  # fmt: skip


def _check_both_have_tls(invitation: Invitation, tls: NodeTls | None) -> None:
    if tls is None and invitation.ca != NO_CA:
        raise InvalidArgument(
            f"invitation {invitation.id} is of a cluster whose CA has the key "
            f"{invitation.ca}, but this node has no TLS; give --tls-ca the CA of that "
            "cluster, with --tls-cert and --tls-key", what="invitation",
        )  # fmt: skip
    if tls is not None and invitation.ca == NO_CA:
        raise InvalidArgument(
            f"invitation {invitation.id} is of a cluster without TLS, but this node has "
            "TLS; start the node without TLS, or give an invitation to a cluster with "
            "TLS", what="invitation",
        )  # fmt: skip
