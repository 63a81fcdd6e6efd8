"""Whether each restore from the tier gave the oldest entries of each key, and nothing else.

`wrong-restore`: the entries of a key are not the first entries of the key in the final read, with
their seqs: an entry is left out, is there twice, has another place, or never was in the cluster.
`restore-went-back`: a restore gives less of a key than a restore before it. `no-restore`: the
restore at the end failed. `not-settled`: after the faults the store did not get everything, or it
kept what no restore needs.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from ..history import Operation
from ..verdict import Anomaly, Result
from .account import Account


def restored(account: Account, test: Mapping[str, Any]) -> Result:
    """Judge the operations `restored` of a history; test.json has the end as `settled`."""
    result = Result("tier")
    every = [one for one in account.operations if one.f == "restored"]
    done = [one for one in every if one.outcome == "ok"]
    final = account.final()
    told = test.get("settled")
    if told is None or final is None or not every:
        result.unknown.append("the test did not restore the log at its end, or did not read it")
        return result
    if told:
        result.anomalies.append(Anomaly("not-settled", f"after the faults: {told}"))
    if every[-1].outcome != "ok":
        message = f"the restore at the end failed: {every[-1].error}"
        result.anomalies.append(Anomaly("no-restore", message, None, (every[-1].index,)))
    if not any(one.answer["keys"] for one in done):
        result.unknown.append("no restore gave an entry")
    result.anomalies += _wrong(done, final)
    last = done[-1].answer["keys"] if done else {}
    result.counts |= {
        "restores": len(done), "restores without an answer": len(every) - len(done),
        "entries of the last restore": sum(map(len, last.values())),
        "spoiled requests": test.get("spoiled", 0),
    }  # fmt: skip
    if test.get("local_retention_bytes") is not None:
        count = result.counts["files in the tier only"] = test.get("only_files", 0)
        if not count:
            result.unknown.append("no file has left the disks for the tier")
    return result


def _wrong(done: list[Operation], final: Operation) -> Iterator[Anomaly]:
    contents = final.answer["keys"]
    before: dict[str, int] = {}
    for one in done:
        keys = one.answer["keys"]
        for key, entries in keys.items():
            has = contents.get(key, [])
            if entries != has[: len(entries)]:
                at = next(
                    (at for at, pair in enumerate(zip(entries, has, strict=False))
                     if pair[0] != pair[1]), len(has),
                )  # fmt: skip
                message = f"entry {at} of key {key} is {entries[at]} in a restore, and"
                message += f" {has[at] if at < len(has) else 'not there'} in the final read"
                operations = (one.index, final.index)
                yield Anomaly("wrong-restore", message, key, operations)
        for key, count in before.items():
            if len(keys.get(key, [])) < count:
                message = f"a restore gives {len(keys.get(key, []))} entries of key {key}, and one"
                message += f" before it gave {count}"
                yield Anomaly("restore-went-back", message, key, (one.index,))
        before = {key: len(entries) for key, entries in keys.items()}
