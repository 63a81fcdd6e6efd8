"""Quotas: what a principal, or a tenant, may use of each node and of the cluster.

A quota has a name and a limit for each kind that it limits. A name that ends with `/` is the name
of a tenant: the quota covers all logs whose names begin with it, for all users together. Any other
name is the name of a class of principals: each principal of the class has the whole quota for
itself. `default` is the class of principals without another class.

A limit per second holds on each node by itself, with a burst of one second. Limits of connections
and follows hold on each node too; limits of logs and of producer names hold in the cluster.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from ..client.protocol import limits, log_names
from ..client.protocol.errors import InvalidArgument, LimitExceeded, NotFound
from ..client.protocol.quotas import COUNTS, KINDS, OF_CLASSES, OF_TENANTS

Limits = Mapping[str, int]
Quotas = Mapping[str, Limits]


def tenant_of(log_name: str) -> str:
    """Return the tenant of a log, with the `/`: `acme/` of `acme/orders`.

    It is empty for a log without a tenant.
    """
    tenant, slash, _ = log_name.partition("/")
    return tenant + slash if slash else ""


def changed(quotas: Quotas, name: str, changes: object) -> Limits:
    """Return the limits of the quota after `changes`, a map of kinds to new limits.

    A nil removes a limit. Raises InvalidArgument, LimitExceeded for one quota too many.
    """
    check_name(name)
    if not isinstance(changes, Mapping) or not changes:
        raise InvalidArgument(
            f"quota {name!r} has no limits; give one of {', '.join(KINDS)}", what="limits"
        )
    if name not in quotas and len(quotas) >= limits.quotas_max:
        raise LimitExceeded(
            f"the cluster would have {len(quotas)} quotas; at most {limits.quotas_max} are "
            "allowed. Delete a quota that is not in use.",
            limit="quotas_max", value=len(quotas) + 1, allowed=limits.quotas_max,
        )  # fmt: skip
    found = dict(quotas.get(name, {}))
    for kind, limit in changes.items():
        if kind not in KINDS:
            raise InvalidArgument(
                f"a quota cannot limit {kind!r}; {', '.join(KINDS)} are allowed", what="limits"
            )
        fitting = OF_TENANTS if name.endswith("/") else OF_CLASSES
        if kind in COUNTS and kind not in fitting:
            raise InvalidArgument(
                f"a quota of {name!r} cannot limit {kind}; a "
                f"{'tenant' if name.endswith('/') else 'class'} can have limits of "
                f"{', '.join(fitting)}, and rates", what="limits",
            )  # fmt: skip
        if limit is None:
            found.pop(kind, None)
        elif type(limit) is not int or not 1 <= limit <= limits.quota_max:
            raise InvalidArgument(
                f"the limit of {kind} is {limit!r}; give a whole number of 1 to "
                f"{limits.quota_max}, or nil for no limit",
                what="limits",
            )
        else:
            found[kind] = limit
    return {kind: found[kind] for kind in KINDS if kind in found}


def check_logs(quotas: Quotas, name: str, names: Iterable[str]) -> None:
    """Raise LimitExceeded if the tenant of a new log already has as many logs as its quota allows.

    `names` are the names of all logs.
    """
    tenant = tenant_of(name)
    allowed = quotas.get(tenant, {}).get("logs")
    if allowed is None:
        return
    count = sum(tenant_of(each) == tenant for each in names) + 1
    if count > allowed:
        raise LimitExceeded(
            f"tenant {tenant} would have {count} logs, and its quota allows {allowed}; "
            "delete a log, or ask for a higher quota (`lognode quota set`)",
            limit="quota of logs", value=count, allowed=allowed,
        )  # fmt: skip


def existing(quotas: Quotas, name: str) -> Limits:
    """Return the limits of the quota. Raises NotFound."""
    found = quotas.get(name)
    if found is None:
        raise NotFound(
            f"quota {name!r} does not exist; `lognode quota list` shows all quotas", quota=name
        )
    return found


def check_name(name: object) -> None:
    """Raise InvalidArgument or LimitExceeded unless the name is a valid quota name."""
    log_names.check(name)
    if "/" in str(name)[:-1] or name == "/":
        raise InvalidArgument(
            f"the quota name {name!r} is not allowed; a class has no `/`, and a tenant has "
            "a single `/`, at the end: `acme/`",
            what="name",
        )


def of_image(image: Mapping[str, Any]) -> dict[str, Limits]:
    """Return the quotas of a metadata image."""
    return {str(name): dict(found) for name, found in image.items()}
