"""The screen of `lognode top`: a status of the cluster as lines of text, without a terminal."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

from .printer import cell
from .quantities import size

SORTS: Final = ("appends", "reads", "size")
"""What the ranges may be sorted by, the largest first."""
_FIELDS: Final = {"appends": "records_per_s", "reads": "reads_per_s", "size": "segment_bytes"}
_NODES: Final = ("id", "address", "zone", "state", "alive", "disk", "replicas", "leads", "appends",
                 "version")  # fmt: skip
_RANGES: Final = ("id", "log", "start", "leader", "members", "state", "size", "entries", "appends",
                  "bytes", "reads", "hot key")  # fmt: skip
_TEXT: Final = frozenset(
    ("address", "zone", "state", "version", "log", "start", "members", "hot key", "alive", "disk")
)
"""Columns that begin at the left; numbers end at the right."""
_CELL_MAX: Final = 28
_REASONS_MAX: Final = 3

Row = Mapping[str, Any]


def screen(
    status: Row, health: Row, *, sort: str, clock: str, lines: int, columns: int
) -> list[str]:
    """Return at most `lines` lines of at most `columns` characters.

    `status` and `health` are the answers of `Client.status` and `Client.health`; `sort` is one of
    SORTS; `clock` is the time to show. A rate that no node told is shown as `-`.
    """
    told = [
        *_head(status, health, clock),
        "",
        *_table("NODES", _NODES, _nodes(status)),
        "",
        *_table(f"RANGES, most {_words(sort)} first", _RANGES, _ranges(status, sort)),
    ]
    if len(told) > lines:
        rest = f"... {len(told) - lines + 1} more lines"
        told = [*told[: lines - 1], rest] if lines > 0 else []
    return [line[:columns] for line in told]


def _words(sort: str) -> str:
    return "bytes" if sort == "size" else sort


def _head(status: Row, health: Row, clock: str) -> list[str]:
    cluster, ranges = status["cluster"], status["ranges"]
    held = [bytes_ for row in ranges if (bytes_ := row.get("segment_bytes")) is not None]
    level = f"feature level {cluster['feature_level']}"
    lines = [
        f"lognode  {'healthy' if health['ok'] else 'NOT HEALTHY'}  cluster {cluster['id']}"
        f"  {level}  {clock}",
        f"{len(status['nodes'])} nodes, {len(status['logs'])} logs, {len(ranges)} ranges, "
        f"{len(status['operations'])} changes of ranges under way, "
        f"{len(status['damaged'])} damaged replicas",
        f"appends {_sum(ranges, 'records_per_s')}/s, reads {_sum(ranges, 'reads_per_s')}/s over "
        f"the last minute; {size(sum(held))} in segments, {_sum(ranges, 'entries_held')} entries",
    ]
    reasons = health.get("reasons") or []
    lines += [f"! {reason}" for reason in reasons[:_REASONS_MAX]]
    if len(reasons) > _REASONS_MAX:
        lines.append(f"! and {len(reasons) - _REASONS_MAX} more: see `lognode health`")
    if health.get("next"):
        lines.append(f"> {health['next']}")
    return [cell(line) for line in lines]


def _sum(rows: Sequence[Row], field: str) -> str:
    told = [value for row in rows if (value := row.get(field)) is not None]
    return f"{sum(told):,.0f}" if told else "-"


def _nodes(status: Row) -> list[Row]:
    leads: Counter[int] = Counter()
    appends: Counter[int] = Counter()
    for row in status["ranges"]:
        leads[row["leader"]] += 1
        appends[row["leader"]] += row.get("records_per_s") or 0
    return [
        {
            **node,
            "disk": "short" if node["disk_short"] else "ok",
            "leads": leads[node["id"]],
            "appends": f"{appends[node['id']]:,.0f}/s",
        }
        for node in status["nodes"]
        if node["state"] != "REMOVED"
    ]


def _ranges(status: Row, sort: str) -> list[Row]:
    field = _FIELDS[sort]
    rows = sorted(status["ranges"], key=lambda row: (-(row.get(field) or 0), row["id"]))
    return [
        {
            **row,
            "log": row["log"] or "(metadata)",
            "size": _or_dash(row.get("segment_bytes"), size),
            "entries": _or_dash(row.get("entries_held"), "{:,}".format),
            "appends": _or_dash(row.get("records_per_s"), "{:,.0f}/s".format),
            "bytes": _or_dash(row.get("bytes_per_s"), lambda rate: f"{size(rate)}/s"),
            "reads": _or_dash(row.get("reads_per_s"), "{:,.0f}/s".format),
            "hot key": (row.get("hot_key") or {}).get("key"),
        }
        for row in rows
    ]


def _or_dash(value: Any, text: Any) -> str:
    return "-" if value is None else str(text(value))


def _table(title: str, names: Sequence[str], rows: Sequence[Row]) -> list[str]:
    cells = [[cell(row.get(name))[:_CELL_MAX] for name in names] for row in rows]
    heads = [name.upper() for name in names]
    widths = [max(map(len, column)) for column in zip(heads, *cells, strict=True)]

    def line(parts: Sequence[str]) -> str:
        return "  ".join(
            part.ljust(width) if name in _TEXT else part.rjust(width)
            for part, width, name in zip(parts, widths, names, strict=True)
        ).rstrip()

    return [title, line(heads), *map(line, cells)]
