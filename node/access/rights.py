"""Check the requests of the clients that show one token against what the token allows."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from ...client.accepting.access import Allowed
from ...client.protocol import Operation, Permission, Subject, limits
from ...client.protocol.appends import FENCE, PRODUCER_CLOSE, PRODUCER_NUMBER
from ...client.protocol.errors import RangeNotFound, Unauthorized, Unavailable
from ...client.protocol.groups import GROUP_APPEND, GROUP_CREATE
from ...client.protocol.key_spans import KeySpans, Span, prefix_span
from ...client.protocol.patterns import Patterns
from ...client.protocol.principal import Principal
from ...client.protocol.reads import EXPORT, FOLLOW, KEYS, LATEST, RESOLVE
from ...client.protocol.scopes import Scope, common_tenant
from ...partitions.grants import granted
from ...partitions.groups import dead_letters
from ...partitions.metadata import Metadata
from ...partitions.model import Descriptor
from ...partitions.tokens import TokenRecord
from .key_rights import KeyRights

_REMEMBERED_MAX: Final = 1_024
"""The most pairs of verb and log whose keys are cached for one token."""
_GRANTS_MAX: Final = 1_024
"""The most grants of producer ids that are cached for one token."""
_ROUTED: Final = "routed"
"""Stands for any verb that goes to ranges."""
_KEYLESS: Final = frozenset({"describe"})
_NO_IDS: Final = range(0)
_PRODUCER: Final = {FENCE: "id", PRODUCER_CLOSE: "id", PRODUCER_NUMBER: "producer"}
"""The field of the operation that names a producer id."""
_CHOOSING: Final = frozenset((KEYS, EXPORT, FOLLOW, RESOLVE))
"""Reads that show no entry that does not match the `patterns` of the request."""
_SETTLED: Final = ("acks", "releases", "rejects", "extends")
"""Fields of GROUP_SETTLE whose rows begin with a key. GROUP_APPEND has the first."""
_ACKS: Final = replace(GROUP_APPEND, permission=Permission.READ, subject=Subject.KEYS)
"""The right to acknowledge the entries of keys: the right to read the keys."""
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
            verb for scope in record.scopes if scope.has_every_log and scope.has_every_key
            for verb in scope.verbs
        )  # fmt: skip
        """Verbs that the token allows for all keys of all logs."""
        self._remembered: dict[tuple[str, str, bytes], KeyRights] = {}
        """By verb, log and the log's hierarchy."""
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
        if operation is GROUP_CREATE:
            self._check_dead_letters(body)
        if body.get("turn") is not None:
            self._authorised(_TURN, body)
        if operation is GROUP_APPEND:
            self._authorised(_ACKS, body)
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

    def _authorised(self, operation: Operation, body: Body) -> KeyRights | None:
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
            if not self.may(permission, name):
                raise self._refusal(operation, f"log {name}")
        elif subject is Subject.CLUSTER:
            raise self._refusal(operation, "the whole cluster")
        else:
            return self._of_range(operation, subject, body)
        return None

    def sees(self, log: str) -> bool:
        """Return whether the principal may know of the log."""
        return any(scope.has_log(log) for scope in self.record.scopes)

    def routed(self, log: str, hierarchy: bytes) -> KeySpans | None:
        """Return the keys of the log whose ranges the principal may know, or None for every key.

        These are the keys of all its verbs except `describe`: a status shows no keys to a principal
        that may not read them. With a pattern, these are all keys that begin as the pattern begins,
        up to the first wildcard: the client needs the ranges of the matching keys.
        """
        found = self._remembered.get((_ROUTED, log, hierarchy))
        if found is None:
            found = self._remember(
                (_ROUTED, log, hierarchy),
                [s for s in self.record.scopes if s.verbs - _KEYLESS and s.has_log(log)
                 and (s.by_pattern or len(s.span()[0]) <= limits.key_bytes_max)],
            )  # fmt: skip
        return None if found.has_every_key else found.around

    def may(self, permission: Permission, log: str) -> bool:
        """Return whether the principal has the permission for all keys of the log."""
        # No pattern is needed for every key: `*` says the same.
        return self._keys(permission, log, b"").has_every_key

    def may_span(self, permission: Permission, log: str, span: Span) -> bool:
        """Return whether the principal has the permission for all keys of the span of the log."""
        return self._keys(permission, log, b"").covers(*span)

    def may_everywhere(self, permission: Permission) -> bool:
        """Return whether the principal has the permission for all logs, present and future."""
        return permission.value in self._everywhere

    def _check_visible(self, operation: Operation, log: str | None) -> None:
        if log is not None and not self.sees(log):
            raise self._refusal(operation, f"log {log}")

    def _of_range(self, operation: Operation, subject: Subject, body: Body) -> KeyRights | None:
        range_ = self._range(body["range"])
        record = self._metadata().logs.get(range_.log_id)
        name, hierarchy = ("", b"") if record is None else (record.name, record.hierarchy)
        keys = self._keys(operation.permission, name, hierarchy)
        if keys.has_no_key:
            raise self._refusal(operation, f"log {name}", name)
        if subject is Subject.RANGE or keys.has_every_key:
            return None
        if subject is Subject.BATCHES:
            return keys
        if not _within(keys, operation, body, range_):
            raise self._refusal(operation, f"all of these keys of log {name}", name)
        return None

    def _check_dead_letters(self, body: Body) -> None:
        """Raise Unauthorized if the group would append to a log to which the principal may not.

        A copy has the key of its entry, so the right is needed for all keys of the group.
        """
        log, verb = dead_letters(body["on_dead"]), Permission.APPEND
        if log is None or verb.value in self._everywhere:
            return
        chosen = Patterns.from_wire(body["patterns"])
        spans = [prefix_span(body["prefix"])] if chosen is None else chosen.spans
        if not all(self._keys(verb, log, b"").covers(*span) for span in spans):
            raise Unauthorized(
                f"the dead letters of the group would go to log {log}; token "
                f"{self.record.token_id} of {self.record.principal} does not allow {verb.value} "
                "there on all keys of the group. Use a token whose scopes allow this"
            )

    def _range(self, range_id: int) -> Descriptor:
        """Return the range, or a range that now has some of its keys: both are of one log."""
        metadata = self._metadata()
        found = metadata.ranges.get(range_id)
        if found is not None:
            return found
        for descendant in metadata.descendants(range_id):
            return descendant
        raise RangeNotFound(f"this node has no range {range_id}", range=range_id)

    def _keys(self, permission: Permission, log: str, hierarchy: bytes) -> KeyRights:
        """Return the keys of the log for which the principal has the permission."""
        verb = permission.value
        found = self._remembered.get((verb, log, hierarchy))
        if found is None:
            scopes = [s for s in self.record.scopes if verb in s.verbs and s.has_log(log)]
            found = self._remember((verb, log, hierarchy), scopes)
        return found

    def _remember(self, what: tuple[str, str, bytes], scopes: list[Scope]) -> KeyRights:
        if len(self._remembered) >= _REMEMBERED_MAX:
            self._remembered.clear()
        found = self._remembered[what] = KeyRights.of_scopes(scopes, what[2])
        return found

    def _refusal(self, operation: Operation, what: str, log: str | None = None) -> Unauthorized:
        verb = operation.permission.value
        need = "any verb" if operation.subject is Subject.VISIBLE else f"the verb {verb}"
        advice = "use a token whose scopes allow this"
        patterns = [
            scope.text for scope in self.record.scopes
            if scope.by_pattern and verb in scope.verbs and log is not None and scope.has_log(log)
        ]  # fmt: skip
        if patterns:
            advice = (
                f"the token has the scope `{patterns[0]}`, which allows single keys that match, "
                "and reads whose patterns lie within this pattern, in logs with a hierarchy. Name "
                "such keys or patterns, or use another token"
            )
        return Unauthorized(
            f"{operation} needs {need} on {what}, which token {self.record.token_id} of "
            f"{self.record.principal} does not allow; {advice}"
        )


def _within(keys: KeyRights, operation: Operation, body: Body, range_: Descriptor) -> bool:
    """Return whether the principal has the right to all keys that the request names."""
    if body.get("key") is not None:
        return keys.has(body["key"])
    if "acks" in body:
        return keys.has_all([row[0] for field in _SETTLED for row in body.get(field, ())])
    spans = body.get("spans")
    if spans is not None and not all(keys.covers(start, end) for start, end, _ in spans):
        return False
    named = body.get("keys", None if spans is None else [])
    if named is not None:
        return keys.has_all(list(named) if type(named) is dict else [row[0] for row in named])
    asked = _common(
        prefix_span(body.get("prefix") or b""), (body.get("start_key") or b"", body.get("end_key"))
    )
    covers = _covers(keys, operation, body)
    if range_.range_id != body["range"] or range_.generation != body["generation"]:
        return covers(*asked)
    read = _common(asked, range_.span)
    # The range has none of the keys. Allowing the request would show where the range begins or
    # ends, which is a key.
    has_none = read[1] is not None and read[1] <= read[0]
    return covers(*(asked if has_none else read))


def _covers(
    keys: KeyRights, operation: Operation, body: Body
) -> Callable[[bytes, bytes | None], bool]:
    """Return the check of the span that a read goes over. A read of allowed patterns may go over
    keys that begin as the patterns of the token begin: such keys may show between its pages."""
    if operation in _CHOOSING and keys.patterns and body["patterns"] is not None:
        chosen = Patterns.from_wire(body["patterns"])
        if chosen is not None and keys.covers_matching(chosen):
            return keys.around.covers
    return keys.covers


def _common(one: Span, other: Span) -> Span:
    """Return the keys in both spans; there is no such key if the end is not above the start."""
    ends = [end for end in (one[1], other[1]) if end is not None]
    return max(one[0], other[0]), min(ends, default=None)
