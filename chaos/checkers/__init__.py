"""chaos/checkers/: judges of histories; they start nothing, wait for nothing and ask nothing.

A checker is a function from a history to a result. It takes n log n of the history's length, except
for searches. The common input of all checkers is gathered once, in an `Account`:

- `account`: every record with its outcome, every read, and when each fact was known;
- `entries`, `order`, `reads`, `final`: rules for every workload: single entries, appends that
  follow each other, the content of reads, the content at the end;
- `follows`, `register`, `adds`, `once`, `snapshots`, `groups`: the rules of the workloads follow,
  register, set, exactly-once, snapshot, group; `group_account` has the facts for the last, and
  `group_outputs` the rules for outputs and dead letters;
- `views`: the rules of the workload view, beside those of groups;
- `kafka`: the rules of the workload kafka, whose facts are in `kafka_account`;
- `restored`: whether restores from the cluster's tier gave what was there;
- `access`: whether only authorised clients got in, where the cluster has TLS and tokens;
- `enough`: whether enough happened for a verdict;
- `wgl`, `models`: whether the operations on one object have a linear order, by search.

`judge` runs all checkers of a workload.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from ..history import History
from ..plan import KAFKA
from ..verdict import Anomaly, Result
from .access import access
from .account import Account
from .adds import adds
from .enough import enough
from .entries import entries
from .final import counts, final
from .follows import follows
from .groups import groups
from .kafka import kafka
from .once import once
from .order import order
from .reads import reads
from .register import conditions, linearizable
from .restored import restored
from .snapshots import snapshots
from .views import views

Rule = Callable[[Account], Iterator[Anomaly]]


@dataclass(frozen=True, slots=True)
class Checker:
    """Judges a history. Raises ValueError, KeyError or TypeError for a history of another shape."""

    name: str
    _fill: Callable[[Account, Result], None]

    def __call__(self, history: History) -> Result:
        """Judge a history."""
        return self.of(Account(history))

    def of(self, account: Account) -> Result:
        """Judge a history whose account is already gathered."""
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
    "group": (Checker("group", groups),),
    "view": (Checker("group", groups), Checker("view", views)),
}


def for_workload(name: str) -> list[Checker]:
    """Return the checkers of this workload. Raises KeyError for an unknown workload."""
    return [_LOG, *_OF_WORKLOADS[name]]


def judge(history: History, test: Mapping[str, Any]) -> list[Result]:
    """Return all results of a test, as test.json describes it; `enough` is the last."""
    if test["workload"] == KAFKA:
        # Kafka clients read from leaders alone: there are no reads of the replicas at the end.
        return [kafka(history), enough(history, {**test, "left": ()})]
    account = Account(history)
    found = [checker.of(account) for checker in for_workload(test["workload"])]
    if test.get("tier"):
        found.append(restored(account, test))
    if test.get("secure"):
        found.append(access(history, test))
    return [*found, enough(history, test)]
