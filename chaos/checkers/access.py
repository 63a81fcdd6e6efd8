"""Whether only authorised clients got in, in a test whose cluster has TLS and tokens.

test.json has the attempts of `strangers`: how many of each kind the nodes `refused`, and how many
they `let_in`. The history has the errors of the workload.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from ..history import History
from ..verdict import Anomaly, Result

_REFUSED: Final = "UNAUTHORIZED"
_CLOCK: Final = "clock"
"""A node whose clock is before the start of a certificate has to refuse the certificate."""


def access(history: History, test: Mapping[str, Any]) -> Result:
    """Check that strangers were refused, each kind at least once, and the workload never was."""
    result = Result("access")
    told = test.get("strangers")
    if told is None:
        result.unknown.append("the test did not record the answers to strangers")
    else:
        result.counts |= told["refused"]
        result.anomalies += _let_in(told["let_in"])
        result.unknown += [
            f"no node refused {kind}" for kind, count in told["refused"].items() if not count
        ]
    if _CLOCK not in test["nemesis"]:
        result.anomalies += _shut_out(history)
    return result


def _let_in(counts: Mapping[str, int]) -> Iterator[Anomaly]:
    for kind, count in counts.items():
        if count:
            yield Anomaly("let-in", f"nodes accepted {kind}, {count} times", promise="X5")


def _shut_out(history: History) -> Iterator[Anomaly]:
    for one in history.operations():
        if one.error is not None and one.error.startswith(_REFUSED):
            message = f"a node refused a client with the workload's token: {one.error}"
            yield Anomaly("shut-out", message, None, (one.index,))
