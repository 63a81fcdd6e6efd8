"""Judge a stored history: the checkers of its workload, the sentence, `results.json`."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from . import checkers, store
from .history import History
from .process import BUG
from .verdict import Anomaly, Result, Verdict, merged


def judge(folder: Path) -> dict[str, Any]:
    """Read `test.json` and `history.jsonl`, write and return `results.json`.

    Raises InvalidArgument for a folder without these files.
    """
    test = store.read(folder, store.TEST)
    history = History.read(folder / store.HISTORY)
    results = [*checkers.judge(history, test), clients_kept_their_word(history)]
    if (reason := test.get("not_converged")) is not None:
        results.append(Result("converged", [Anomaly("not-converged", reason, promise="L2")]))
    verdict = merged(results)
    events = history.events
    told = {
        "verdict": verdict,
        "why": sentence(verdict, results),
        "checkers": {one.checker: one.to_json() for one in results},
        "counts": counts(history),
        "duration_s": round(events[-1].time / 1e9, 1) if events else 0.0,
    }
    store.write(folder, store.RESULTS, told)
    return told


def clients_kept_their_word(history: History) -> Result:
    """Check that the SDK raised only its own errors."""
    result = Result("clients")
    for one in history.operations():
        if one.error is not None and one.error.startswith(BUG):
            result.anomalies.append(Anomaly("client-bug", one.error, None, (one.index,)))
    return result


def counts(history: History) -> dict[str, int]:
    """Count operations by outcome and by kind, and faults."""
    found = Counter(one.outcome for one in history.operations())
    kinds = Counter(f"{one.f} {one.outcome}" for one in history.operations())
    return dict(found) | dict(sorted(kinds.items())) | {"faults": len(history.bands())}


def sentence(verdict: Verdict, results: Sequence[Result]) -> str:
    """Return the findings in words."""
    if verdict == "valid":
        return "All answers to clients agree with all reads."
    if verdict == "unknown":
        return "; ".join(reason for one in results for reason in one.unknown)
    names = Counter(anomaly.name for one in results for anomaly in one.anomalies)
    first = next(anomaly for one in results for anomaly in one.anomalies)
    found = ", ".join(f"{count} {name}" for name, count in names.most_common())
    return f"{found}; the first: {first.message}"
