"""The screen of `lognode top`: a status of the cluster as lines of text, without a terminal.

A screen has the verdict and sums above, and below the tables of its view. A table that is wider
than the screen leaves out columns, the least important first. A table that is longer than the
screen scrolls.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

from .printer import cut, shown, width
from .quantities import age, size

VIEWS: Final = ("overview", "nodes", "ranges", "groups")
"""What a screen may show. The overview has the nodes and the busiest ranges."""
SORTS: Final = ("appends", "reads", "size")
"""What the ranges may be sorted by, the largest first."""
NODE_SORTS: Final = ("id", "appends", "leads", "replicas")
"""What the nodes may be sorted by: the smallest id first, and the largest of all others."""
GROUP_SORTS: Final = ("lag", "age", "parked", "group")
"""What the groups may be sorted by: names in their order, and the largest of all others first."""
SORTS_OF: Final = {
    "overview": SORTS, "nodes": NODE_SORTS, "ranges": SORTS, "groups": GROUP_SORTS,
}  # fmt: skip
"""What each view may be sorted by. The first one is the default."""
_FIELDS: Final = {"appends": "records_per_s", "reads": "reads_per_s", "size": "segment_bytes"}
_NODES: Final = ("id", "address", "zone", "state", "alive", "disk", "replicas", "leads", "appends",
                 "version")  # fmt: skip
_RANGES: Final = ("id", "log", "start", "leader", "members", "state", "size", "entries", "appends",
                  "bytes", "reads", "hot key")  # fmt: skip
_GROUPS: Final = ("log", "group", "lag", "age", "waiting", "in flight", "parked", "consumers",
                  "bytes")  # fmt: skip
_LEAST: Final = {
    "NODES": ("version", "zone", "disk"),
    "RANGES": ("entries", "members", "bytes", "start", "state", "hot key"),
    "GROUPS": ("bytes", "waiting", "consumers"),
}
"""Columns that a narrow screen leaves out, the first one first."""
_TEXT: Final = frozenset(
    ("address", "zone", "state", "version", "log", "start", "members", "hot key", "alive", "disk",
     "group")
)  # fmt: skip
"""Columns that begin at the left; numbers end at the right."""
_CELL_MAX: Final = 28
_GAP: Final = "  "
_HEAD_LINES: Final = 2
"""The lines of a table before its rows: the title, and the heads."""
_REASONS_MAX: Final = 3

Row = Mapping[str, Any]


def screen(
    status: Row, health: Row, *, sort: str, clock: str, lines: int, columns: int,
    view: str = "overview", groups: Sequence[Row] | None = None, skip: int = 0, now_ms: int = 0,
) -> list[str]:  # fmt: skip
    """Return at most `lines` lines of at most `columns` characters, as `scrolled` does."""
    return scrolled(
        status, health, sort=sort, clock=clock, lines=lines, columns=columns, view=view,
        groups=groups, skip=skip, now_ms=now_ms,
    )[0]  # fmt: skip


def scrolled(
    status: Row, health: Row, *, sort: str, clock: str, lines: int, columns: int, view: str,
    groups: Sequence[Row] | None, skip: int, now_ms: int,
) -> tuple[list[str], int]:  # fmt: skip
    """Return at most `lines` lines of at most `columns` characters, and the rows left out.

    `status` and `health` are the answers of `Client.status` and `Client.health`; `groups` those of
    `top_groups.look`, None: not known yet. `view` is one of VIEWS, `sort` one of its SORTS_OF.
    `clock` is the time to show, and `now_ms` the same in Unix time. `skip`: rows of the last table
    to leave out, at most until its end is on the screen. A rate that no node told is shown as `-`.
    """
    tables: list[list[str]] = []
    if view in ("overview", "nodes"):
        order = sort if view == "nodes" else NODE_SORTS[0]
        tables.append(_table("NODES", _NODES, _nodes(status, order), order, columns))
    if view in ("overview", "ranges"):
        tables.append(_table("RANGES", _RANGES, _ranges(status, sort), sort, columns))
    if view == "groups":
        rows = _groups(groups or (), sort, now_ms)
        tables.append(_table("GROUPS", _GROUPS, rows, sort, columns))
        if not rows:
            tables[-1] = [*tables[-1][:1], "no groups" if groups is not None else "looking"]
    head = _head(status, health, clock)
    told = [*head, *(line for table in tables for line in ("", *table))]
    first = len(told) - len(tables[-1]) + _HEAD_LINES
    skip = max(0, min(skip, len(told) - first, len(told) - lines))
    del told[first : first + skip]
    if len(told) > lines:
        rest = f"... {len(told) - lines + 1} more lines"
        told = [*told[: lines - 1], rest] if lines > 0 else []
    return [cut(line, columns) for line in told], skip


def _order(sort: str) -> str:
    """Return the order of a table in words."""
    if sort in ("id", "group"):
        return f"by {sort}"
    if sort == "age":
        return "oldest entry first"
    return f"most {'bytes' if sort == 'size' else sort} first"


def _head(status: Row, health: Row, clock: str) -> list[str]:
    cluster, ranges = status["cluster"], status["ranges"]
    held = [bytes_ for row in ranges if (bytes_ := row.get("segment_bytes")) is not None]
    lines = [
        f"lognode  {'healthy' if health['ok'] else 'NOT HEALTHY'}  {clock}  "
        f"feature level {cluster['feature_level']}  cluster {cluster['id']}",
        f"{_counted(status['nodes'], 'node')}, {_counted(status['logs'], 'log')}, "
        f"{_counted(ranges, 'range')}, {_counted(status['operations'], 'change')} of ranges under "
        f"way, {_counted(status['damaged'], 'damaged replica')}",
        f"appends {_sum(ranges, 'records_per_s')}/s, reads {_sum(ranges, 'reads_per_s')}/s over "
        f"a minute; {size(sum(held))} in segments, {_sum(ranges, 'entries_held')} entries",
    ]
    reasons = health.get("reasons") or []
    lines += [f"! {reason}" for reason in reasons[:_REASONS_MAX]]
    if len(reasons) > _REASONS_MAX:
        lines.append(f"! and {len(reasons) - _REASONS_MAX} more: see `lognode health`")
    if health.get("next"):
        lines.append(f"> {health['next']}")
    return [shown(line) for line in lines]


def _counted(rows: Sequence[Any], word: str) -> str:
    return f"{len(rows)} {word}{'' if len(rows) == 1 else 's'}"


def _sum(rows: Sequence[Row], field: str) -> str:
    told = [value for row in rows if (value := row.get(field)) is not None]
    return f"{sum(told):,.0f}" if told else "-"


def _nodes(status: Row, sort: str) -> list[Row]:
    leads: Counter[int] = Counter()
    appends: Counter[int] = Counter()
    for row in status["ranges"]:
        leads[row["leader"]] += 1
        appends[row["leader"]] += row.get("records_per_s") or 0
    sums = {"appends": appends, "leads": leads}

    def place(node: Row) -> tuple[float, int]:
        if sort == "id":
            return 0, node["id"]
        return -(sums[sort][node["id"]] if sort in sums else node[sort]), node["id"]

    return [
        {
            **node,
            "disk": "short" if node["disk_short"] else "ok",
            "leads": leads[node["id"]],
            "appends": f"{appends[node['id']]:,.0f}/s",
        }
        for node in sorted(status["nodes"], key=place)
        if node["state"] != "REMOVED"
    ]


def _groups(groups: Sequence[Row], sort: str, now_ms: int) -> list[Row]:
    def place(row: Row) -> tuple[float, str, str]:
        lag = row["lag"]
        if lag is None or sort == "group":
            return 0 if sort == "group" else 1, row["group"], row["log"]
        values = {"lag": lag["entries"], "parked": lag["parked"],
                  "age": now_ms - (lag["oldest_ms"] or now_ms)}  # fmt: skip
        return -values[sort], row["group"], row["log"]

    return [_group(row, row["lag"], now_ms) for row in sorted(groups, key=place)]


def _group(row: Row, lag: Row | None, now_ms: int) -> Row:
    named = {"log": row["log"], "group": row["group"]}
    if lag is None:
        return named
    oldest_ms = lag["oldest_ms"]
    return {
        **named,
        "lag": f"{lag['entries']:,}" + ("" if lag["begun"] else "+"),
        "age": None if oldest_ms is None else age(max(0, now_ms - oldest_ms)),
        "waiting": str(lag["waiting"]),
        "in flight": str(lag["in_flight"]),
        "parked": str(lag["parked"]),
        "consumers": str(lag["consumers"]),
        "bytes": size(lag["bytes"]),
    }


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


def _table(
    title: str, names: Sequence[str], rows: Sequence[Row], sort: str, columns: int
) -> list[str]:
    """Return a title, the heads and the rows, without the columns that do not fit."""
    left_out = list(_LEAST[title])
    while True:
        cells = [[cut(shown(row.get(name)), _CELL_MAX) for name in names] for row in rows]
        heads = [name.upper() for name in names]
        widths = [max(map(width, column)) for column in zip(heads, *cells, strict=True)]
        if sum(widths) + len(_GAP) * (len(widths) - 1) <= columns or not left_out:
            break
        least = left_out.pop(0)
        names = [name for name in names if name != least]

    def line(parts: Sequence[str]) -> str:
        return _GAP.join(
            part + gap if name in _TEXT else gap + part
            for part, name, gap in zip(parts, names, map(_blanks, parts, widths), strict=True)
        ).rstrip()

    return [f"{title}, {_order(sort)}", line(heads), *map(line, cells)]


def _blanks(part: str, columns: int) -> str:
    return " " * (columns - width(part))
