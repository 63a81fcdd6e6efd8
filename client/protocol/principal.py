"""The identity at the other end of an accepted connection, for permissions, budgets and quotas."""

import re
from typing import Final, NamedTuple

from . import limits
from .errors import InvalidArgument

DEFAULT_CLASS: Final = "default"
"""The quota class of a principal without another class."""
_NAME: Final = re.compile(rf"[A-Za-z][A-Za-z0-9._@-]{{0,{limits.principal_name_chars_max - 1}}}")


class Principal(NamedTuple):
    """The name under which a node accounts for a connection.

    `name` is one of these: the name that a token or the record of a certificate gives its
    principal, which begins with a letter and has neither a colon nor a space; `node 3` for a node
    of the cluster; and, while authorisation is off, the holder of a certificate (`client app`) or
    the remote address without its port. `tenant` is the first part of the log names that the
    principal may use (`acme` of `acme/orders`), None when the principal is not confined to one
    tenant. `quota_class` names the quota that limits the principal.
    """

    name: str
    tenant: str | None = None
    quota_class: str = DEFAULT_CLASS


def anonymous(host: str) -> Principal:
    """Return the principal of a client without token and certificate: the host of its address."""
    return Principal(host)


def of_node(node: int | None) -> Principal:
    """Return the principal of a node of the cluster."""
    return Principal(f"node {node}")


def check_principal_name(name: str) -> str:
    """Return the name if a token may give it to its principal. Raises InvalidArgument."""
    if not _NAME.fullmatch(name):
        raise InvalidArgument(
            f"principal name {name[:80]!r} is not allowed; use 1 to "
            f"{limits.principal_name_chars_max} letters, digits and . _ @ -, and begin with a "
            "letter", what="principal",
        )  # fmt: skip
    return name
