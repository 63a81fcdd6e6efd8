"""What a node's /metrics shows."""

import urllib.request

from lognode.testing import LocalNode


def metric(node: LocalNode, name: str) -> float:
    """The value of a metric, 0 where there is none; `name` with its labels."""
    with urllib.request.urlopen(f"http://{node.http}/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    return next((float(line.split()[-1]) for line in lines if line.startswith(f"{name} ")), 0.0)
