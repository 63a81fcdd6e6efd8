"""The verbs of live tests: `test`, `test-all`, `analyze`."""

import argparse
import asyncio
import itertools
import random
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ..client.protocol.errors import InvalidArgument, LognodeError
from . import store
from .judge import judge
from .links import PROXIES, new_links
from .nemeses import PACKAGES
from .plan import KAFKA, STANDARD, WORKLOADS, Plan
from .report import write as write_report
from .runner import missing, run_test
from .verdict import EXIT_CODES, Verdict, worst

Say = Callable[[str], None]


def _nemesis(text: str) -> tuple[str, ...]:
    """Parse `kill,partition` or `kill+partition`; `none` and the empty text mean no faults."""
    names = tuple(name for name in text.replace("+", ",").split(",") if name not in ("", "none"))
    if unknown := [name for name in names if name not in PACKAGES]:
        raise argparse.ArgumentTypeError(
            f"unknown nemesis: {', '.join(unknown)}; the allowed names are none, "
            f"{', '.join(PACKAGES)}"
        )
    return tuple(dict.fromkeys(names))


def _positive(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 1e6:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return value


def _count(text: str) -> int:
    if not text.isdigit() or not 0 < int(text) <= 10_000:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 to 10,000")
    return int(text)


def add_verbs(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]", say: Say) -> None:
    """Add the verbs; the handler of each is called with the arguments and returns the exit code."""
    test = verbs.add_parser("test", help="run one workload under faults, against a new cluster")
    test.add_argument("-w", "--workload", choices=WORKLOADS, default="append")
    test.add_argument(
        "--nemesis", type=_nemesis, default=(), metavar="F,...",
        help=f"kinds of faults: none, {', '.join(PACKAGES)} (default none)",
    )  # fmt: skip
    test.add_argument("--nodes", type=int, choices=range(1, 10), default=3, metavar="N")
    test.add_argument(
        "--test-count",
        type=_count,
        default=1,
        metavar="K",
        help="number of runs, each with the next seed",
    )
    _add_common(test)
    test.set_defaults(verb=lambda arguments: run(arguments, say))

    every = verbs.add_parser(
        "test-all",
        help="run each workload under each standard nemesis with 3 and 5 nodes; a second call "
        "continues the first",
    )
    every.add_argument(
        "--nodes", type=int, nargs="+", choices=range(1, 10), default=[3, 5], metavar="N"
    )
    every.add_argument("-w", "--workload", nargs="+", choices=WORKLOADS, default=list(WORKLOADS))
    _add_common(every)
    every.set_defaults(verb=lambda arguments: run_all(arguments, say))

    analyze = verbs.add_parser("analyze", help="judge the history of a stored test again")
    analyze.add_argument("folder", type=Path, metavar="DIR", help="STORE/TEST/TIME")
    analyze.set_defaults(verb=lambda arguments: analyze_again(arguments, say))


def _add_common(verb: argparse.ArgumentParser) -> None:
    default = Plan()
    verb.add_argument(
        "--rate", type=_positive, default=default.rate, metavar="R",
        help=f"operations per second of all clients together (default {default.rate:g})",
    )  # fmt: skip
    verb.add_argument(
        "--time-limit", type=_positive, default=default.time_limit_s, metavar="S",
        help=f"seconds of load under faults (default {default.time_limit_s:g})",
    )  # fmt: skip
    verb.add_argument(
        "--nemesis-interval", type=_positive, default=default.nemesis_interval_s, metavar="S",
        help=f"seconds between changes of the faults (default {default.nemesis_interval_s:g})",
    )  # fmt: skip
    verb.add_argument("--clients", type=_count, default=default.clients, metavar="N")
    verb.add_argument(
        "--seed", type=int, metavar="N", help="seed of all random choices (default: random)"
    )
    verb.add_argument(
        "--store", type=Path, default=Path("store"), metavar="DIR",
        help="directory of the tests (default ./store)",
    )  # fmt: skip
    verb.add_argument(
        "--source", type=Path, metavar="DIR",
        help="folder with another build of the package lognode, which the nodes run",
    )  # fmt: skip
    verb.add_argument(
        "--earlier", type=Path, metavar="DIR",
        help="folder with an earlier build, which the nodes run until the nemesis `upgrade` "
        "upgrades them",
    )  # fmt: skip
    verb.add_argument(
        "--secure", action="store_true",
        help="use TLS, and tokens for clients; nodes must refuse strangers",
    )  # fmt: skip
    verb.add_argument(
        "--tier", action="store_true",
        help="give the nodes a tier, an S3 server on this machine; restore the log from the tier "
        "during the test. The nemesis `tier` implies --tier",
    )  # fmt: skip
    verb.add_argument(
        "--local-retention-bytes", type=int, metavar="BYTES",
        help="keep so many bytes of each range on the disk of a node, the rest in the tier; "
        "implies --tier",
    )  # fmt: skip
    verb.add_argument(
        "--proxy", choices=PROXIES, default="auto",
        help="the real Toxiproxy, or the built-in proxy (default: the real one if installed)",
    )  # fmt: skip


def run(arguments: argparse.Namespace, say: Say) -> int:
    """Run the verb `test`."""
    seed = random.randrange(1 << 31) if arguments.seed is None else arguments.seed
    verdicts: list[Verdict] = []
    for count in range(arguments.test_count):
        plan = _plan(
            arguments, arguments.workload, arguments.nemesis, arguments.nodes, seed + count
        )
        verdicts.append(_one(plan, arguments, say)["verdict"])
    return EXIT_CODES[worst(verdicts)]


def run_all(arguments: argparse.Namespace, say: Say) -> int:
    """Run the verb `test-all`; tests that `test-all.json` already has are not run again."""
    seed = random.randrange(1 << 31) if arguments.seed is None else arguments.seed
    plans = list(_matrix(arguments, seed))
    commit = plans[0].described()["commit"]
    done = _resumed(arguments.store, commit)
    for plan in plans:
        if plan.name not in done["tests"]:
            done["tests"][plan.name] = _one(plan, arguments, say)
            store.write(arguments.store, store.ALL, done)
    for plan in plans:
        told = done["tests"][plan.name]
        counts = told["counts"]
        say(
            f"{plan.name:<32}{told['verdict']:<9}{counts['ok']:>8,} ok"
            f"{counts.get('fail', 0):>7,} fail{counts.get('info', 0):>6,} info"
            f"{counts['faults']:>5} faults"
        )
    verdict = worst(done["tests"][plan.name]["verdict"] for plan in plans)
    say(f"{verdict}: {len(plans)} tests of commit {commit}")
    return EXIT_CODES[verdict]


def analyze_again(arguments: argparse.Namespace, say: Say) -> int:
    """Run the verb `analyze`."""
    told = judge(arguments.folder)
    say(f"{told['verdict']}: {told['why']}")
    say(str(write_report(arguments.folder)))
    return EXIT_CODES[told["verdict"]]


def _matrix(arguments: argparse.Namespace, seed: int) -> Iterator[Plan]:
    each = itertools.product(arguments.workload, STANDARD, arguments.nodes)
    for count, (workload, nemesis, nodes) in enumerate(each):
        yield _plan(arguments, workload, _nemesis(nemesis), nodes, seed + count)


def _plan(
    arguments: argparse.Namespace, workload: str, nemesis: tuple[str, ...], nodes: int, seed: int
) -> Plan:
    for name, folder in (("source", arguments.source), ("earlier", arguments.earlier)):
        if folder is not None and not (folder / "lognode").is_dir():
            raise InvalidArgument(
                f"--{name} {folder} contains no package lognode; give the folder above the package",
                what=name,
            )
    if ("upgrade" in nemesis) != (arguments.earlier is not None):
        raise InvalidArgument(
            "the nemesis upgrade and --earlier DIR need each other; give both or neither",
            what="earlier",
        )
    local_bytes = arguments.local_retention_bytes
    if local_bytes is not None and local_bytes < 1:
        raise InvalidArgument(
            f"--local-retention-bytes is {local_bytes}; give 1 or more",
            what="local_retention_bytes",
        )
    tier = arguments.tier or "tier" in nemesis or local_bytes is not None
    for name, given in (("secure", arguments.secure), ("earlier", arguments.earlier)):
        if tier and given:
            raise InvalidArgument(
                f"a test has either a tier or --{name}; leave one of them out", what="tier"
            )
    if workload == KAFKA and (arguments.secure or arguments.earlier is not None or tier):
        raise InvalidArgument(
            "the workload kafka has no --secure, --earlier and --tier; leave these out",
            what="workload",
        )
    return Plan(
        workload=workload, nemesis=nemesis, nodes=nodes, seed=seed, rate=arguments.rate,
        time_limit_s=arguments.time_limit, nemesis_interval_s=arguments.nemesis_interval,
        clients=arguments.clients, source=arguments.source, secure=arguments.secure, tier=tier,
        local_retention_bytes=local_bytes,
        earlier=None if arguments.earlier is None else arguments.earlier.absolute(),
    )  # fmt: skip


def _one(plan: Plan, arguments: argparse.Namespace, say: Say) -> dict[str, Any]:
    """Run one test and print its verdict; a test that cannot run here is unknown, by name."""
    if reasons := missing(plan):
        why = "; ".join(reasons)
        say(f"{plan.name} unknown: the test cannot run on this machine: {why}")
        return {"verdict": "unknown", "why": why, "counts": {"ok": 0, "faults": 0}}
    folder = store.new_folder(arguments.store, plan.name)
    say(f"{plan.name} seed {plan.seed} in {folder}")
    # Like Ctrl-C, which the loop turns into a cancellation: all started processes are stopped.
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    try:
        told = asyncio.run(run_test(plan, folder, new_links(arguments.proxy), say))
    except LognodeError as error:
        say(f"{plan.name} unknown: {error}")
        return {"verdict": "unknown", "why": str(error), "counts": {"ok": 0, "faults": 0}}
    say(f"{plan.name} {told['verdict']}: {told['why']}")
    say(f"    {write_report(folder)}")
    return {name: told[name] for name in ("verdict", "why", "counts")} | {"folder": str(folder)}


def _resumed(folder: Path, commit: str) -> dict[str, Any]:
    """Return the results of an earlier run. Raises InvalidArgument if it was of another commit."""
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / store.ALL).exists():
        return {"commit": commit, "tests": {}}
    done = store.read(folder, store.ALL)
    if done["commit"] != commit:
        raise InvalidArgument(
            f"{folder / store.ALL} is of commit {done['commit']}, but the current commit is "
            f"{commit}; give another --store, or remove the file",
            what="store",
        )
    return done
