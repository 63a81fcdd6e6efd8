"""What may be proposed to the metadata: every field of a command, of its type and within bounds.

Who proposes a command checks it here first, and so does the node that a client or a peer asked.
What is in the log has therefore passed this check: it applies, it can be packed into an image, and
the nodes that read it can use it. `Metadata.apply` checks less on purpose. It also replays what
older versions have committed, and all members must answer a command alike, whatever their version.

A field that is not in the table is left out: a newer node may send it, and nobody could check it.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from ..client import checks, limits
from ..client.address import split_address
from ..client.errors import InvalidArgument, Unsupported
from . import allocate, commands, lifecycle, log_names, policy, splits
from .generation_commands import REASON_CHARS_MAX
from .metadata import NODE_STATES
from .model import NodeRecord

Command = dict[str, Any]
Check = Callable[[object, str], Any]
"""(value, name of the field): the value to propose. Raises InvalidArgument or LimitExceeded."""

_INPUTS_MAX: Final = 2
_KIND_BYTES_MAX: Final = 32
_HASH_BYTES_MAX: Final = 64
_LINEAGE_NUMBERS: Final = 6
_MISSING: Final = object()


def checked(command: Mapping[Any, Any], nodes: Mapping[int, NodeRecord]) -> Command:
    """The command as it may be proposed. `nodes` are those of the newest metadata known.

    Raises InvalidArgument or LimitExceeded that name the field; Unsupported for an unknown command.
    """
    op = command.get("op")
    fields = _FIELDS.get(op) if isinstance(op, str) else None
    if fields is None:
        raise Unsupported(f"metadata command {checks.shown(op)} is unknown to this node")
    found: Command = {"op": op}
    for name, check in fields.items():
        value = command.get(name, _MISSING)
        if value is not _MISSING:
            found[name] = check(value, name)
        elif check not in _OPTIONAL:
            check(None, name)  # which raises: the field is missing
    if op == commands.REGISTER:
        _check_registration(found, nodes)
    elif op == commands.CREATE_LOG:
        policy.of_request(found)
    return found


def _check_registration(command: Command, nodes: Mapping[int, NodeRecord]) -> None:
    node, boot = command.get("node"), command["boot"]
    if node is None:
        if boot != 0:
            raise InvalidArgument(
                f"a node that joins has boot 0, not {boot}; a node that has joined registers with "
                "its own id", what="boot",
            )  # fmt: skip
        return
    known = nodes.get(node)
    if known is not None:
        lifecycle.check_boot(known, boot)


# Fields.


def _number(value: object, name: str) -> int:
    return checks.number(value, name)


def _id(value: object, name: str) -> int:
    return checks.number(value, name, least=1)


def _boot(value: object, name: str) -> int:
    return checks.number(value, name, most=limits.boot_max)


def _flag(value: object, name: str) -> bool:
    return bool(value)


def _text(bytes_max: int) -> Check:
    def check(value: object, name: str) -> str:
        return checks.text(value, name, bytes_max=bytes_max)

    return check


def _address(value: object, name: str) -> str:
    split_address(value, name)
    return str(value)


def _http(value: object, name: str) -> str:
    return "" if value in (None, "") else _address(value, name)


def _zone(value: object, name: str) -> str:
    return "" if value is None else checks.line(value, name, bytes_max=limits.zone_bytes_max)


def _reason(value: object, name: str) -> str:
    """The beginning of a reason: it may quote what other nodes have said."""
    whole = checks.text(value, name, bytes_max=limits.entry_bytes_max)
    return whole[:REASON_CHARS_MAX]


def _log_name(value: object, name: str) -> str:
    if isinstance(value, str):
        checks.text(value, name, bytes_max=limits.entry_bytes_max)  # which is valid Unicode
    log_names.check(value)
    return str(value)


def _producer_name(value: object, name: str) -> str:
    found = checks.text(value, name, bytes_max=limits.producer_name_bytes_max)
    if not found:
        raise InvalidArgument(
            f"producer name of 1 to {limits.producer_name_bytes_max} bytes, not ''", what=name
        )
    return found


def _range_count(value: object, name: str) -> int:
    count = checks.number(value, name) or 1
    allocate.check_count(count)
    return count


def _split_keys(value: object, name: str) -> list[bytes]:
    if type(value) is not list:
        raise InvalidArgument(
            f"`{name}` must be an array of keys, not {checks.shown(value)}", what=name
        )
    allocate.check_keys([_bytes(each, name) for each in value])
    return value


def _split_key(value: object, name: str) -> bytes:
    found = _bytes(value, name)
    splits.check_length(found)
    return found


def _met_at(value: object, name: str) -> bytes:
    """Where two ranges meet; of none the metadata says that they do not."""
    found = _bytes(value, name)
    return checks.key(found, name) if found else found


def _bytes(value: object, name: str) -> bytes:
    if type(value) is not bytes:
        raise InvalidArgument(f"`{name}` must be a key, not {checks.shown(value)}", what=name)
    return value


def _changes(value: object, name: str) -> dict[str, Any]:
    return policy.check_changes(value)


def _rule(value: object, name: str) -> Any:
    """One rule of a policy; `policy.of_request` looks at all of them together."""
    return policy.check_rule(name, value)


def _state(value: object, name: str) -> str:
    if value not in NODE_STATES:
        raise InvalidArgument(
            f"no node state {checks.shown(value)}; the states are {', '.join(NODE_STATES)}",
            what=name,
        )
    return str(value)


def _members(value: object, name: str) -> list[int]:
    return checks.numbers(value, name, count_max=limits.nodes_max)


def _inputs(value: object, name: str) -> list[list[int]]:
    found = [checks.numbers(each, name, count_max=2) for each in _rows(value, name)]
    if any(len(each) != 2 for each in found):
        raise _no_rows(value, name)
    return found


def _outputs(value: object, name: str) -> list[dict[str, Any]]:
    found = []
    for each in _rows(value, name):
        if not isinstance(each, Mapping):
            raise _no_rows(value, name)
        found.append(
            {
                "range": _number(each.get("range"), name),
                "members": _members(each.get("members"), name),
            }
        )
    return found


def _output_members(value: object, name: str) -> list[list[int]]:
    return [_members(each, name) for each in _rows(value, name)]


def _lineage(value: object, name: str) -> list[list[Any]]:
    found = []
    for parent in _rows(value, name):
        if not isinstance(parent, list | tuple) or len(parent) != _LINEAGE_NUMBERS + 1:
            raise _no_rows(value, name)
        *numbers, digest = parent
        if type(digest) is not bytes or len(digest) > _HASH_BYTES_MAX:
            raise _no_rows(value, name)
        known = checks.numbers(
            numbers, name, count_max=_LINEAGE_NUMBERS, most=limits.packed_number_max
        )
        found.append([*known, digest])
    return found


def _rows(value: object, name: str) -> list[Any]:
    if not isinstance(value, list | tuple) or not 1 <= len(value) <= _INPUTS_MAX:
        raise _no_rows(value, name)
    return list(value)


def _no_rows(value: object, name: str) -> InvalidArgument:
    return InvalidArgument(
        f"`{name}` must have 1 to {_INPUTS_MAX} rows of an operation, each with all its fields; "
        f"{checks.shown(value)} was given", what=name,
    )  # fmt: skip


def _or_nil(check: Check) -> Check:
    """The field may be missing or nil."""

    def optional(value: object, name: str) -> Any:
        return None if value is None else check(value, name)

    _OPTIONAL.add(optional)
    return optional


_OPTIONAL: Final[set[Check]] = {_http, _zone, _flag}
_KIND: Final = _text(_KIND_BYTES_MAX)
_LOG: Final = _text(limits.log_name_bytes_max)
_AT: Final = _or_nil(_number)
_WHY: Final = _or_nil(_reason)

_FIELDS: Final[Mapping[str, Mapping[str, Check]]] = {
    commands.FOUND: {"cluster": _text(limits.cluster_id_bytes_max), "node": _id},
    commands.REGISTER: {
        "node": _or_nil(_id), "incarnation": _number, "boot": _boot, "process": _number,
        "address": _address, "http": _http, "zone": _zone,
    },
    commands.NODE_STATE: {"node": _id, "state": _state},
    commands.DRAIN_NODE: {"node": _number, "undo": _flag},
    commands.REMOVE_NODE: {"node": _number, "dead": _flag},
    commands.CREATE_LOG: {
        "name": _log_name, "ranges": _or_nil(_range_count), "split_at": _or_nil(_split_keys),
        "replicas": _rule, **dict.fromkeys(policy.ALTERABLE, _rule), "exist_ok": _flag,
    },
    commands.ALTER_LOG: {"name": _LOG, "changes": _changes},
    commands.DELETE_LOG: {"name": _LOG},
    commands.OPEN_PRODUCER: {"name": _or_nil(_producer_name)},
    commands.PLAN: {"kind": _KIND, "inputs": _inputs, "outputs": _outputs, "reason": _WHY},
    commands.MOVE: {"range": _number, "from": _number, "to": _number},
    commands.SPLIT: {"log": _LOG, "at": _split_key, "reason": _WHY},
    commands.RECOVER: {"range": _number, "from": _number, "damaged": _or_nil(_members)},
    commands.MERGE: {"log": _LOG, "at": _met_at, "reason": _WHY},
    commands.SEALING: {"operation": _number},
    commands.APART: {"operation": _number},
    commands.DECIDE: {"operation": _number, "lineage": _lineage, "members": _output_members},
    commands.INSTALLED: {"operation": _number, "node": _id, "at_ms": _AT},
    commands.DONE: {"operation": _number, "at_ms": _AT},
    commands.ABORT: {"operation": _number, "at_ms": _AT},
    commands.SEAL_CONTROLLER: {
        "members": _members, "kind": _or_nil(_KIND), "reason": _WHY, "at_ms": _AT,
    },
}  # fmt: skip
"""Per command its fields, each with its check."""
