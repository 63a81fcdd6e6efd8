"""Scopes of tokens: the verbs that a principal may use, on which logs and on which keys.

A scope has verbs, a pattern of log names and a pattern of keys. A pattern is a full name or key, or
a prefix that ends with `*`; `*` alone matches everything. The text form of a scope is

    VERBS [LOG [KEYS]]      read,append acme/* user-*
    VERBS LOG pattern:P     read acme/shop pattern:eu/*/orders/>

The second form allows the keys that match a pattern of the levels of a log's hierarchy (see
`patterns`). Such a scope allows nothing in a log without a hierarchy, and in a log where the
pattern is not valid.

A principal may do everything that at least one of its scopes allows.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

from . import characters, limits
from .errors import InvalidArgument
from .key_spans import Span, prefix_span

VERBS: Final = ("describe", "read", "append", "trim", "group", "admin")
ALL: Final = "all"
"""The text form of all verbs."""
_BY_PATTERN: Final = "pattern:"
"""Begins the text form of a pattern of levels."""
_WHOLE_LOGS: Final = frozenset({"describe", "admin", "group"})
"""Verbs that no pattern of keys can restrict."""


@dataclass(frozen=True, slots=True)
class Scope:
    """The rights of a token: see the module.

    `verbs`: some of `VERBS`; `log`: a log's name, or a prefix of names that ends with `*`; `keys`:
    a key, or a prefix of keys that ends with `*`, or with `by_pattern` a pattern of the levels of a
    log's hierarchy, which excludes nothing. `describe` gives access to status, health and
    metrics. Any verb on a log shows its name, and shows the ranges that have keys of scopes with
    other verbs than `describe`. `admin` on `*` includes nodes and tokens. Raises InvalidArgument.
    """

    verbs: frozenset[str]
    log: str = "*"
    keys: bytes = b"*"
    by_pattern: bool = False

    def __post_init__(self) -> None:
        unknown = self.verbs - frozenset(VERBS)
        if unknown or not self.verbs:
            given = ", ".join(sorted(unknown)) or "nothing"
            raise _wrong(f"the scope has the verbs {given}; allowed: {', '.join(VERBS)}, or {ALL}")
        if not self.log or "*" in self.log[:-1] or not _is_name(self.log):
            raise _wrong(
                f"the scope has the log {self.log!r}; allowed: a log's name, or a prefix and `*`"
            )
        if not 1 <= len(self.keys) <= limits.key_bytes_max + 1:
            raise _wrong(
                f"the scope has keys of {len(self.keys)} bytes; allowed: a key or a prefix and "
                f"`*`, 1 to {limits.key_bytes_max + 1} bytes"
            )
        if self.by_pattern and self.keys.startswith(b"!"):
            raise _wrong(
                f"the scope has the pattern {_shown(self.keys)}, which excludes keys; scopes only "
                "allow. Give the patterns of the allowed keys, each in a scope of its own"
            )
        if not self.has_every_key and self.verbs & _WHOLE_LOGS:
            raise _wrong(
                f"the scope has the verbs {self._verbs_text} and the keys "
                f"{self._keys_text}; {', '.join(sorted(_WHOLE_LOGS))} apply to whole "
                "logs. Give these verbs in another scope"
            )

    @property
    def text(self) -> str:
        """The text form of the scope."""
        words = [self._verbs_text, self.log, self._keys_text]
        while len(words) > 1 and words[-1] == "*":
            words.pop()
        return " ".join(words)

    @property
    def _verbs_text(self) -> str:
        if len(self.verbs) == len(VERBS):
            return ALL
        return ",".join(verb for verb in VERBS if verb in self.verbs)

    @property
    def _keys_text(self) -> str:
        return _BY_PATTERN + _shown(self.keys) if self.by_pattern else _shown(self.keys)

    @property
    def has_every_key(self) -> bool:
        """Whether the scope covers all keys of each of its logs, whatever their hierarchies are."""
        return self.keys == b"*" and not self.by_pattern

    @property
    def has_every_log(self) -> bool:
        """Whether the scope covers all present and future logs."""
        return self.log == "*"

    @property
    def tenant(self) -> str | None:
        """The first part of the names of all logs in the scope, None when they have none in
        common."""
        first, slash, _ = self.log.partition("/")
        return first if slash and first else None

    def has_log(self, name: str) -> bool:
        """Return whether the scope covers the log of that name."""
        if self.log.endswith("*"):
            return name.startswith(self.log[:-1])
        return name == self.log

    def span(self) -> Span:
        """Return the span of the keys that the scope covers; only for a scope without a pattern."""
        assert not self.by_pattern, "a pattern needs the hierarchy of a log"
        if self.keys.endswith(b"*"):
            return prefix_span(self.keys[:-1])
        if len(self.keys) >= limits.key_bytes_max:
            # Keys are no longer than this, so the next key is the first one beyond the prefix,
            # itself a key.
            return prefix_span(self.keys)
        return self.keys, self.keys + b"\0"

    def to_wire(self) -> list[Any]:
        """Return the scope as an array, without `by_pattern`."""
        return [[verb for verb in VERBS if verb in self.verbs], self.log, self.keys]

    @classmethod
    def from_wire(cls, row: Sequence[Any], *, by_pattern: bool = False) -> Self:
        """Undo `to_wire`. Raises InvalidArgument, TypeError, ValueError."""
        verbs, log, keys = row
        if type(log) is not str or type(keys) is not bytes:
            raise TypeError(
                "a scope has a log that is not text, or keys that are not bytes; give text and "
                "bytes"
            )
        return cls(frozenset(verbs), log, keys, by_pattern)


def parse_scope(text: str) -> Scope:
    """Return the scope of a text. Raises InvalidArgument."""
    words = text.split(None, 2)
    if not words:
        raise _wrong("the scope is empty; write verbs, then a log, then keys: `read acme/* user-*`")
    verbs = frozenset(words[0].split(","))
    if ALL in verbs:
        verbs = verbs - {ALL} | frozenset(VERBS)
    log = words[1] if len(words) > 1 else "*"
    given = words[2] if len(words) > 2 else "*"
    by_pattern = given.startswith(_BY_PATTERN)
    keys = given.removeprefix(_BY_PATTERN).encode("utf-8", "surrogateescape")
    return Scope(verbs, log, keys, by_pattern)


def to_rows(scopes: Iterable[Scope]) -> dict[str, list[Any]]:
    """Return the fields `scopes` and, where a scope has a pattern, `patterns` of a record."""
    plain: list[Any] = []
    patterns: list[Any] = []
    for scope in scopes:
        (patterns if scope.by_pattern else plain).append(scope.to_wire())
    return {"scopes": plain, "patterns": patterns} if patterns else {"scopes": plain}


def from_rows(body: Mapping[str, Any]) -> tuple[Scope, ...]:
    """Undo `to_rows`. Raises InvalidArgument, TypeError, ValueError."""
    patterns = body.get("patterns") or ()
    return (
        *map(Scope.from_wire, body["scopes"]),
        *(Scope.from_wire(row, by_pattern=True) for row in patterns),
    )


def scopes_of(given: Iterable[Scope | str]) -> tuple[Scope, ...]:
    """Return the scopes, given as text or as `Scope`. Raises InvalidArgument, also for too many."""
    found = tuple(parse_scope(each) if isinstance(each, str) else each for each in given)
    if not 1 <= len(found) <= limits.token_scopes_max:
        raise _wrong(
            f"the token has {len(found)} scopes; allowed are 1 to {limits.token_scopes_max}"
        )
    return found


def check_new(scope: Scope) -> None:
    """Raise InvalidArgument unless a command may bring this scope into the log.

    Members of every version of lognode and of Python accept the scope.
    """
    if not characters.is_printable(scope.log):
        raise _wrong(
            f"the scope has the log {scope.log!a}; Unicode 14 does not print one of its "
            "characters. Use letters, digits and `/ - _ .`"
        )


def common_tenant(scopes: Iterable[Scope]) -> str | None:
    """Return the tenant that all scopes are confined to, or None."""
    tenants = {scope.tenant for scope in scopes}
    return tenants.pop() if len(tenants) == 1 else None


def _is_name(pattern: str) -> bool:
    within = len(pattern.encode("utf-8", "replace")) <= limits.log_name_bytes_max + 1
    return within and characters.is_fit(pattern)


def _shown(keys: bytes) -> str:
    return keys.decode("utf-8", "backslashreplace")


def _wrong(message: str) -> InvalidArgument:
    return InvalidArgument(f"{message}.", what="scope")
