"""chaos/checkers/: judges of histories; nothing here starts, waits for or asks anything.

A checker is a function from a history to a result; it takes n log n of the history's length, but
for searches. What all of them read is gathered once, in an `Account`:

- `account`: every record with what became of it, every read, and what was known when;
- `entries`, `order`, `reads`, `final`: rules that hold in every workload, of single entries, of
  appends that follow each other, of what reads must show, of what is there at the end;
- `follows`, `register`, `adds`, `once`, `snapshots`: those of the workloads follow, register, set,
  exactly-once, snapshot;
- `access`: whether the right ones got in, where the cluster has TLS and tokens;
- `enough`: whether enough happened for a verdict;
- `wgl`, `models`: whether the operations on one object have a linear order, by search.

`judge` asks all that a workload needs.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from ..history import History
from ..verdict import Anomaly, Result
from .access import access
from .account import Account
from .adds import adds
from .enough import enough
from .entries import entries
from .final import counts, final
from .follows import follows
from .once import once
from .order import order
from .reads import reads
from .register import conditions, linearizable
from .snapshots import snapshots

Rule = Callable[[Account], Iterator[Anomaly]]


@dataclass(frozen=True, slots=True)
class Checker:
    """Judges a history. Raises ValueError, KeyError or TypeError for one of another shape."""

    name: str
    _fill: Callable[[Account, Result], None]

    def __call__(self, history: History) -> Result:
        """What it finds."""
        return self.of(Account(history))

    def of(self, account: Account) -> Result:
        """The same, of what is gathered already."""
        result = Result(self.name)
        self._fill(account, result)
        return result


def _log(account: Account, result: Result) -> None:
    for rule in (entries, order, reads, final):
        result.anomalies += rule(account)
    result.counts |= counts(account)


def _all_of(rule: Rule) -> Callable[[Account, Result], None]:
    def fill(account: Account, result: Result) -> None:
        result.anomalies += rule(account)

    return fill


_LOG: Final = Checker("log", _log)
_OF_WORKLOADS: Final[Mapping[str, tuple[Checker, ...]]] = {
    "append": (),
    "follow": (Checker("follow", follows),),
    "register": (
        Checker("conditions", _all_of(conditions)),
        Checker("linearizable", linearizable),
    ),
    "set": (Checker("set", adds),),
    "exactly-once": (Checker("exactly-once", _all_of(once)),),
    "snapshot": (Checker("snapshot", snapshots),),
}


def for_workload(name: str) -> list[Checker]:
    """Those that judge a history of this workload; raises KeyError for one that there is not."""
    return [_LOG, *_OF_WORKLOADS[name]]


def judge(history: History, test: Mapping[str, Any]) -> list[Result]:
    """All results of a test, as test.json describes it, `enough` the last of them."""
    account = Account(history)
    found = [checker.of(account) for checker in for_workload(test["workload"])]
    if test.get("secure"):
        found.append(access(history, test))
    return [*found, enough(history, test)]
