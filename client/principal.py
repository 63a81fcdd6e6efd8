"""Who is at the other end of an accepted connection, for permissions, budgets and quotas."""

from dataclasses import dataclass
from typing import Final

DEFAULT_CLASS: Final = "default"
"""The quota class of a principal for which nobody has chosen another class."""


@dataclass(frozen=True, slots=True)
class Principal:
    """The name under which a node accounts for a connection.

    `name` is the name of a token's or certificate's principal, which begins with a letter and has
    neither a colon nor a space; `node 3` for a node of the cluster; or the remote address without
    its port for an anonymous client. `tenant` is the first part of the log names that the principal
    may use (`acme` of `acme/orders`), None where the principal is not confined to one tenant.
    `quota_class` names the limits that hold for the principal.
    """

    name: str
    tenant: str | None = None
    quota_class: str = DEFAULT_CLASS


def anonymous(host: str) -> Principal:
    """Return the principal of a client without token and certificate: the host that it dials
    from."""
    return Principal(host)


def of_node(node: int | None) -> Principal:
    """Return the principal of a node of the cluster."""
    return Principal(f"node {node}")
