"""`lognode-chaos`: the command line of the fault tests. Exit 0 valid, 1 invalid, 2 unknown."""

import argparse
import json
import os
import sys
from collections.abc import Sequence

from .sim import runner
from .sim.options import FAULTS, Options
from .sim.world import run_seed


def _seeds(text: str) -> tuple[int, int]:
    first, dots, end = text.partition("..")
    try:
        span = int(first), int(end)
    except ValueError:
        span = 0, 0
    if not dots or span[0] < 0 or span[1] <= span[0]:
        raise argparse.ArgumentTypeError(f"{text!r} is not A..B with 0 <= A < B; B is exclusive")
    return span


def _faults(text: str) -> tuple[str, ...]:
    names = () if text == "none" else tuple(text.split(","))
    unknown = [name for name in names if name not in FAULTS]
    if unknown:
        raise argparse.ArgumentTypeError(
            f"no such fault: {', '.join(unknown)}; there are none, {', '.join(FAULTS)}"
        )
    return names


def _holes(text: str) -> frozenset[int]:
    try:
        return frozenset(int(number) for number in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of numbers") from None


def _worker(text: str) -> tuple[int, int]:
    number, _, count = text.partition("/")
    return int(number), int(count)


def _add_sim(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    sim = verbs.add_parser(
        "sim",
        help="simulate clusters under faults, deterministically",
        description="Real consensus, WAL and state machine on a virtual clock, network and disk. "
        "Each seed draws its own subset of the faults and its own sizes, and replays exactly.",
        epilog="faults: " + "; ".join(f"{name}: {text}" for name, text in FAULTS.items()),
    )
    which = sim.add_mutually_exclusive_group(required=True)
    which.add_argument("--seeds", type=_seeds, metavar="A..B", help="B is exclusive")
    which.add_argument("--seed", type=int, metavar="N", help="one seed")
    sim.add_argument("--nodes", type=int, choices=(3, 5), help="default: drawn from the seed")
    sim.add_argument(
        "--faults",
        type=_faults,
        metavar="F,...",
        help="exactly these; default: drawn from the seed",
    )
    sim.add_argument(
        "--seconds", type=float, default=20.0, metavar="S", help="virtual seconds a seed (20)"
    )
    sim.add_argument("--trace", action="store_true", help="one line per event; see chaos/sim/trace")
    sim.add_argument(
        "--jobs", type=int, default=os.cpu_count() or 1, metavar="N", help="worker processes"
    )
    sim.add_argument(
        "--open-holes",
        type=_holes,
        default=frozenset(),
        metavar="H,...",
        help="canary: leave these holes of the guard open; the verdict must then be invalid",
    )
    sim.add_argument("--worker", type=_worker, help=argparse.SUPPRESS)
    sim.set_defaults(verb=_sim)


def plan_of(arguments: argparse.Namespace) -> runner.Plan:
    """The plan that parsed arguments of `sim` ask for."""
    first, end = arguments.seeds or (arguments.seed, arguments.seed + 1)
    share = arguments.seconds / 20.0
    base = Options(
        nodes=arguments.nodes or 3,
        faults=tuple(FAULTS) if arguments.faults is None else arguments.faults,
        seconds=arguments.seconds,
        fault_seconds=12.0 * share,
        drain_seconds=16.0 * share,
        opened=arguments.open_holes,
    )
    return runner.Plan(
        first,
        end,
        base,
        pick_faults=arguments.faults is None,
        pick_nodes=arguments.nodes is None,
    )


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _sim(arguments: argparse.Namespace) -> int:
    plan = plan_of(arguments)
    if arguments.worker is not None:
        number, count = arguments.worker
        for outcome in runner.run_here(plan, range(plan.first + number, plan.end, count)):
            _say(json.dumps(outcome.to_json()))
        return runner.VALID
    if arguments.trace:
        summary = runner.Summary(plan.end - plan.first)
        for seed in range(plan.first, plan.end):
            outcome = run_seed(seed, plan.options(seed), _say)
            summary.add(outcome)
            _say(runner.line_of(outcome))
    else:
        summary = runner.run(plan, arguments.jobs, _say)
    code, sentence = summary.verdict()
    _say(f"{sentence} | {summary}")
    return code


def build_parser() -> argparse.ArgumentParser:
    """All verbs and their options."""
    parser = argparse.ArgumentParser(prog="lognode-chaos", description=__doc__)
    verbs = parser.add_subparsers(required=True, metavar="VERB")
    _add_sim(verbs)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    arguments = build_parser().parse_args(argv)
    code: int = arguments.verb(arguments)
    return code


if __name__ == "__main__":
    sys.exit(main())
