"""`scripts/bench growth`: the cost of more ranges, connections, keys and logs (P11).

Each point has fresh nodes, and appends as fast as possible; the figures are compared with the first
point of the sweep. Records go to all connections, keys and logs in turn. Memory is that of the
largest node after the run, over that before the log was created.
"""

from collections.abc import Sequence
from typing import Any

from . import growth_load, harness, nodes

SWEEPS = {
    "ranges": (1, 4, 16, 64, 256),
    "connections": (1, 10, 100, 1_000),
    "keys": (1_000, 100_000, 1_000_000, 10_000_000),
    "logs": (1, 10, 100, 1_000),
}
_QUICK = {"ranges": (1, 8), "connections": (1, 20), "keys": (100, 1_000), "logs": (1, 10)}


def main(arguments: Sequence[str]) -> int:
    """Run the benchmark, print the table, write the JSON."""
    parser = harness.parser("growth", __doc__)
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--sweeps", default=",".join(SWEEPS), help="comma-separated")
    parser.add_argument("--points", help="names of the sweeps, comma-separated")
    options = parser.parse_args(arguments)
    seconds = options.seconds or (0.5 if options.quick else 20.0)
    sweeps = _QUICK if options.quick else SWEEPS
    around = harness.environment()
    rows: list[dict[str, Any]] = []
    for number in range(1, options.rounds + 1):
        for sweep in options.sweeps.split(","):
            if sweep not in SWEEPS:
                parser.error(f"unknown sweep {sweep!r}; known: {', '.join(SWEEPS)}")
            points = sweeps[sweep]
            if options.points:
                points = tuple(map(int, options.points.split(",")))
            first: dict[str, Any] | None = None
            for point in points:
                row = {"round": number, "sweep": sweep, "point": point,
                       **_point(options, sweep, point, seconds)}  # fmt: skip
                first = first or row
                rows.append({
                    **row, "of the first":
                    round(row["records_per_second"] / first["records_per_second"], 3),
                })  # fmt: skip
    harness.show(options, around, rows)
    return 0


def _point(options: Any, sweep: str, point: int, seconds: float) -> dict[str, Any]:
    with harness.cluster(options.data) as cluster:
        before = [nodes.resident_bytes(node) for node in cluster.nodes]
        report = growth_load.started(cluster.servers, sweep, point, seconds)
        after = [nodes.resident_bytes(node) for node in cluster.nodes]
    grown = max(b - a for a, b in zip(before, after, strict=True))
    return {
        "records_per_second": report["records_per_second"], "records": report["records"],
        "service p50 ms": report["service_ms"]["p50"], "node grew MiB": round(grown / (1 << 20), 1),
        "verified": report["verified"],
    }  # fmt: skip
