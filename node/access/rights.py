"""Check the requests of the clients that show one token against what the token allows."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from ...client.accepting.access import Allowed
from ...client.protocol import Operation, Permission, Subject, limits
from ...client.protocol.appends import FENCE, PRODUCER_CLOSE, PRODUCER_NUMBER
from ...client.protocol.errors import RangeNotFound, Unauthorized, Unavailable
from ...client.protocol.key_spans import KeySpans, Span, prefix_span
from ...client.protocol.principal import Principal
from ...client.protocol.reads import LATEST
from ...client.protocol.scopes import common_tenant
from ...partitions.grants import granted
from ...partitions.metadata import Metadata
from ...partitions.model import Descriptor
from ...partitions.tokens import TokenRecord

_REMEMBERED_MAX: Final = 1_024
"""The most pairs of verb and log whose keys are cached for one token."""
_GRANTS_MAX: Final = 1_024
"""The most grants of producer ids that are cached for one token."""
_NOTHING: Final = KeySpans(())
_ROUTED: Final = "routed"
"""Stands for any verb that goes to ranges."""
_KEYLESS: Final = frozenset({"describe"})
_NO_IDS: Final = range(0)
_PRODUCER: Final = {FENCE: "id", PRODUCER_CLOSE: "id", PRODUCER_NUMBER: "producer"}
"""The field of the operation that names a producer id."""
_SETTLED: Final = ("acks", "releases", "rejects", "extends")
"""Fields of GROUP_SETTLE whose rows begin with a key."""
_TURN: Final = replace(LATEST, permission=Permission.APPEND)
"""A read in a turn holds up the clients that append to the key: only they may take a turn."""

Body = dict[str, Any]


class Ending:
    """Rights that may end while connections have them."""

    over: str | None = None
    """Why the rights have ended; None while they hold."""
    over_s = 0.0
    """When the rights ended, in seconds of the monotonic clock."""

    def end(self, why: str, now_s: float) -> None:
        """Allow nothing from now on."""
        if self.over is None:
            self.over, self.over_s = why, now_s

    def check_holds(self) -> None:
        """Raise Unauthorized once the rights have ended."""
        if self.over is not None:
            raise Unauthorized(self.over)


class Rights(Ending):
    """Implements `client.accepting.access.Access` for the holders of one token.

    `check` raises an error while the node may not accept any token."""

    def __init__(
        self,
        record: TokenRecord,
        metadata: Callable[[], Metadata],
        check: Callable[[], None] | None = None,
    ) -> None:
        self._check = check
        self.record = record
        self.principal = Principal(
            record.principal, common_tenant(record.scopes), record.quota_class
        )
        self._metadata = metadata
        self._everywhere: Final = frozenset(
            verb for scope in record.scopes if scope.has_every_log and scope.keys == b"*"
            for verb in scope.verbs
        )  # fmt: skip
        """Verbs that the token allows for all keys of all logs."""
        self._remembered: dict[tuple[str, str], KeySpans] = {}
        self._grants: dict[bytes, range] = {}

    @property
    def owner(self) -> str:
        """The owner of the producers that the holders open."""
        return self.principal.name

    def share(self, record: TokenRecord) -> None:
        """Take an equal record of newer metadata, so that the older object can be freed."""
        self.record = record

    def authorise(self, operation: Operation, body: Body) -> Allowed | None:
        """Return what the batches of the request may contain, or None if it has no batches.

        Raises Unauthorized, RangeNotFound for a range whose log this node does not know, and
        Unavailable when this node cannot decide at present.
        """
        self.check_holds()
        if self._check is not None:
            self._check()
        keys = self._authorised(operation, body)
        if body.get("turn") is not None:
            self._authorised(_TURN, body)
        if operation.subject is Subject.BATCHES:
            return Allowed(keys, self._granted(body["grant"]))
        field = _PRODUCER.get(operation)
        if field is not None:
            Allowed(None, self._granted(body["grant"])).check_producer(body[field])
        return None

    def _granted(self, grant: bytes | None) -> range:
        """Return the producer ids that the request may name."""
        if grant is None:
            return _NO_IDS
        found = self._grants.get(grant)
        if found is None:
            key = self._metadata().producer_key
            if not key:
                raise Unavailable(
                    "this node does not know the key of the grants yet and asks for the "
                    "key; send the request again",
                    reason="behind",
                )
            found = granted(key, grant, self.owner)
            if len(self._grants) >= _GRANTS_MAX:
                self._grants.clear()
            self._grants[grant] = found
        return found

    def _authorised(self, operation: Operation, body: Body) -> KeySpans | None:
        """Return the keys that the request's batches may have, or None for every key."""
        permission, subject = operation.permission, operation.subject
        if permission.value in self._everywhere:
            return None
        if permission is Permission.PEER:
            raise Unauthorized(f"{operation} is only for nodes of the cluster")
        if subject is Subject.VISIBLE:
            self._check_visible(operation, body.get("log"))
        elif subject is Subject.ANY_LOG:
            if not any(permission.value in scope.verbs for scope in self.record.scopes):
                raise self._refusal(operation, "any log")
        elif subject is Subject.LOG:
            name = body["log"] if "log" in body else body["name"]
            if not self._keys(permission, name).has_every_key:
                raise self._refusal(operation, f"log {name}")
        elif subject is Subject.CLUSTER:
            raise self._refusal(operation, "the whole cluster")
        else:
            return self._of_range(operation, subject, body)
        return None

    def sees(self, log: str) -> bool:
        """Return whether the principal may know of the log."""
        return any(scope.has_log(log) for scope in self.record.scopes)

    def routed(self, log: str) -> KeySpans | None:
        """Return the keys of the log whose ranges the principal may know, or None for every key.

        These are the keys of all its verbs except `describe`: a status shows no keys to a principal
        that may not read them.
        """
        found = self._remembered.get((_ROUTED, log))
        if found is None:
            found = self._remember(
                _ROUTED, log,
                [s.span() for s in self.record.scopes if s.verbs - _KEYLESS and s.has_log(log)
                 and len(s.span()[0]) <= limits.key_bytes_max],
            )  # fmt: skip
        return None if found.has_every_key else found

    def may(self, permission: Permission, log: str) -> bool:
        """Return whether the principal has the permission for all keys of the log."""
        return self._keys(permission, log).has_every_key

    def may_span(self, permission: Permission, log: str, span: Span) -> bool:
        """Return whether the principal has the permission for all keys of the span of the log."""
        return self._keys(permission, log).covers(*span)

    def may_everywhere(self, permission: Permission) -> bool:
        """Return whether the principal has the permission for all logs, present and future."""
        return permission.value in self._everywhere

    def _check_visible(self, operation: Operation, log: str | None) -> None:
        if log is not None and not self.sees(log):
            raise self._refusal(operation, f"log {log}")

    def _of_range(self, operation: Operation, subject: Subject, body: Body) -> KeySpans | None:
        range_ = self._range(body["range"])
        record = self._metadata().logs.get(range_.log_id)
        name = "" if record is None else record.name
        keys = self._keys(operation.permission, name)
        if keys is _NOTHING:
            raise self._refusal(operation, f"log {name}")
        if subject is Subject.RANGE or keys.has_every_key:
            return None
        if subject is Subject.BATCHES:
            return keys
        if not _within(keys, body, range_):
            raise self._refusal(operation, f"all of these keys of log {name}")
        return None

    def _range(self, range_id: int) -> Descriptor:
        """Return the range, or a range that now has some of its keys: both are of one log."""
        metadata = self._metadata()
        found = metadata.ranges.get(range_id)
        if found is not None:
            return found
        for descendant in metadata.descendants(range_id):
            return descendant
        raise RangeNotFound(f"this node has no range {range_id}", range=range_id)

    def _keys(self, permission: Permission, log: str) -> KeySpans:
        """Return the keys of the log for which the principal has the permission."""
        verb = permission.value
        found = self._remembered.get((verb, log))
        if found is None:
            spans = [s.span() for s in self.record.scopes if verb in s.verbs and s.has_log(log)]
            found = self._remember(verb, log, spans)
        return found

    def _remember(self, what: str, log: str, spans: list[Span]) -> KeySpans:
        if len(self._remembered) >= _REMEMBERED_MAX:
            self._remembered.clear()
        found = self._remembered[what, log] = KeySpans(spans) if spans else _NOTHING
        return found

    def _refusal(self, operation: Operation, what: str) -> Unauthorized:
        verb = operation.permission.value
        need = "any verb" if operation.subject is Subject.VISIBLE else f"the verb {verb}"
        return Unauthorized(
            f"{operation} needs {need} on {what}, which token {self.record.token_id} of "
            f"{self.record.principal} does not allow; use a token whose scopes allow this"
        )


def _within(keys: KeySpans, body: Body, range_: Descriptor) -> bool:
    """Return whether the principal has the right to all keys that the request names."""
    if body.get("key") is not None:
        return keys.has(body["key"])
    if "acks" in body:
        return keys.has_all([row[0] for field in _SETTLED for row in body[field]])
    spans = body.get("spans")
    if spans is not None and not all(keys.covers(start, end) for start, end, _ in spans):
        return False
    named = body.get("keys", None if spans is None else [])
    if named is not None:
        return keys.has_all(list(named) if type(named) is dict else [row[0] for row in named])
    asked = _common(
        prefix_span(body.get("prefix") or b""), (body.get("start_key") or b"", body.get("end_key"))
    )
    if range_.range_id != body["range"] or range_.generation != body["generation"]:
        return keys.covers(*asked)
    read = _common(asked, range_.span)
    # The range has none of the keys. Allowing the request would show where the range begins or
    # ends, which is a key.
    has_none = read[1] is not None and read[1] <= read[0]
    return keys.covers(*(asked if has_none else read))


def _common(one: Span, other: Span) -> Span:
    """Return the keys in both spans; there is no such key if the end is not above the start."""
    ends = [end for end in (one[1], other[1]) if end is not None]
    return max(one[0], other[0]), min(ends, default=None)
