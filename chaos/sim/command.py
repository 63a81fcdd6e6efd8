"""The verb `sim` of `lognode-chaos`: many seeds, the trace of one seed, replay, and shrinking."""

import argparse
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path

from ...client.protocol.errors import InvalidArgument
from ..plan import SIMULATED
from ..whole import command as whole
from ..whole.additions import NAMES as ADDITIONS
from ..whole.options import FAULTS as FAULTS_OF_WHOLE
from . import boundaries, runner, trace
from .faults import Fault
from .options import FAULTS, HAVING, Options
from .shrink import Case, shrink
from .world import Outcome, run_seed

Say = Callable[[str], None]


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
    unknown = [name for name in names if name not in FAULTS and name not in FAULTS_OF_WHOLE]
    if unknown:
        raise argparse.ArgumentTypeError(
            f"unknown fault: {', '.join(unknown)}; the allowed names are none, {', '.join(FAULTS)}"
        )
    return names


def _with(text: str) -> tuple[str, ...]:
    names = tuple(text.split(","))
    if unknown := [name for name in names if name not in ADDITIONS]:
        raise argparse.ArgumentTypeError(
            f"unknown addition: {', '.join(unknown)}; the allowed names are {', '.join(ADDITIONS)}"
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


def _case(text: str) -> Case:
    try:
        return Case.load(Path(text))
    except (OSError, ValueError) as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _listed(faults: Mapping[str, str]) -> str:
    return "\n".join(f"  {name:<12}{text}" for name, text in faults.items())


def add_verb(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]", say: Say) -> None:
    """Add `sim` and its options.

    The handler is called with the arguments and returns the exit code.
    """
    sim = verbs.add_parser(
        "sim",
        help="simulate clusters under faults, deterministically",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Real consensus, WAL, state machine and metadata on a virtual clock, network\n"
        "and disk. Each seed draws its own faults and sizes, and replays exactly.",
        epilog="faults:\n"
        + _listed(FAULTS)
        + "\n\nfaults with --whole:\n"
        + _listed(FAULTS_OF_WHOLE)
        + "\n\ntrace:\n\n"
        + trace.COLUMNS,
    )
    which = sim.add_mutually_exclusive_group(required=True)
    which.add_argument("--seeds", type=_seeds, metavar="A..B", help="B is exclusive")
    which.add_argument("--seed", type=int, metavar="N", help="run a single seed")
    which.add_argument(
        "--replay", type=_case, metavar="FILE", help="file of a schedule, from --shrink or --save"
    )
    which.add_argument(
        "--boundaries",
        action="store_true",
        help="fixed scenario; each run kills the node before another disk operation",
    )
    _add_drawn(sim)
    sim.add_argument("--trace", action="store_true", help="print one line per event; see below")
    sim.add_argument(
        "--shrink",
        action="store_true",
        help="with --seed or --replay: reduce the faults to a few that still fail, and save the "
        "schedule",
    )
    sim.add_argument(
        "--save", type=Path, metavar="FILE", help="with --seed: save the drawn faults as a schedule"
    )
    sim.add_argument(
        "--jobs",
        type=int,
        default=os.cpu_count() or 1,
        metavar="N",
        help="number of worker processes",
    )
    sim.add_argument(
        "--open-holes",
        type=_holes,
        default=frozenset(),
        metavar="H,...",
        help="canary: disable these fixes of the guard; the verdict must then be invalid",
    )
    sim.add_argument("--worker", type=_worker, help=argparse.SUPPRESS)
    sim.set_defaults(verb=lambda arguments: run(arguments, say))


def _add_drawn(sim: argparse.ArgumentParser) -> None:
    """Add what a seed draws, and which mode runs it."""
    sim.add_argument(
        "--nodes", type=int, choices=(3, 5), help="number of nodes; default: drawn from the seed"
    )
    sim.add_argument(
        "--whole",
        action="store_true",
        help="run whole daemons and SDK clients, in one process on a virtual clock; slower",
    )
    sim.add_argument(
        "--workload", choices=SIMULATED, help="with --whole; default: drawn from the seed"
    )
    sim.add_argument(
        "--with",
        type=_with,
        default=(),
        dest="with_",
        metavar="A,...",
        help=f"with --whole: what each run has besides what its seed draws: {', '.join(ADDITIONS)}",
    )
    sim.add_argument(
        "--faults",
        type=_faults,
        metavar="F,...",
        help="allowed faults, or none; default: drawn from the seed",
    )
    sim.add_argument(
        "--having",
        choices=HAVING,
        help="with --seeds: run only the seeds that draw this; fast mode",
    )
    sim.add_argument(
        "--seconds", type=float, default=20.0, metavar="S", help="virtual seconds of each seed (20)"
    )


def plan_of(arguments: argparse.Namespace) -> runner.Plan:
    """Return the plan that parsed arguments of `sim` describe."""
    first, end = arguments.seeds or (arguments.seed, arguments.seed + 1)
    base = Options(
        nodes=arguments.nodes or 3,
        faults=tuple(FAULTS) if arguments.faults is None else arguments.faults,
        opened=arguments.open_holes,
    ).lasting(arguments.seconds)
    return runner.Plan(
        first,
        end,
        base,
        pick_faults=arguments.faults is None,
        pick_nodes=arguments.nodes is None,
        having=arguments.having,
    )


def run(arguments: argparse.Namespace, say: Say) -> int:
    """Run the verb; return the exit code."""
    if arguments.whole:
        return whole.run(arguments, say)
    for flag, given in (("workload", arguments.workload), ("with", arguments.with_)):
        if given:
            raise InvalidArgument(
                f"--{flag} is an option of --whole. Add --whole or leave out --{flag}", what=flag
            )
    _check_faults(arguments.faults)
    if arguments.boundaries:
        return _boundaries(say)
    if arguments.replay is not None:
        return _one(arguments.replay, arguments, say)
    plan = plan_of(arguments)
    if arguments.worker is not None:
        number, count = arguments.worker
        for outcome in runner.run_here(plan, plan.seeds[number::count]):
            say(json.dumps(outcome.to_json()))
        return runner.VALID
    if arguments.seed is not None:
        options = plan.options(arguments.seed)
        drawn = run_seed(arguments.seed, options, say if arguments.trace else None)
        schedule = tuple(Fault.from_json(fault) for fault in drawn.schedule)
        case = Case(arguments.seed, options, schedule, drawn.violation or "")
        if arguments.save is not None:
            case.save(arguments.save)
        return _shrunk(case, say) if arguments.shrink else _judge(drawn, say)
    summary = runner.run(plan, arguments.jobs, say)
    code, sentence = summary.verdict()
    say(f"{sentence} | {summary}")
    return code


def _check_faults(names: tuple[str, ...] | None) -> None:
    """Raise InvalidArgument for faults that only the whole mode has."""
    if unknown := [name for name in names or () if name not in FAULTS]:
        raise InvalidArgument(
            f"{', '.join(unknown)}: faults of --whole. Add --whole or take others of "
            f"{', '.join(FAULTS)}",
            what="faults",
        )


def _one(case: Case, arguments: argparse.Namespace, say: Say) -> int:
    if arguments.shrink:
        return _shrunk(case, say)
    return _judge(case.run(say if arguments.trace else None), say)


def _judge(outcome: Outcome, say: Say) -> int:
    summary = runner.Summary(1)
    summary.add(outcome)
    runner.tell(outcome, say)
    code, sentence = summary.verdict()
    say(f"{sentence} | {summary}")
    return code


def _shrunk(case: Case, say: Say) -> int:
    smaller = shrink(case)
    if smaller is None:
        say(f"seed={case.seed} has no violation: nothing to shrink")
        return runner.VALID
    path = Path(f"sim-{case.seed}.json")
    smaller.save(path)
    say(f"seed={case.seed} VIOLATION {smaller.violation}")
    say(f"{len(case.schedule)} faults, {len(smaller.schedule)} of them needed:")
    for fault in smaller.schedule:
        say(f"    {fault}")
    say(f"options: {smaller.options}")
    say(f"replay: lognode-chaos sim --replay {path} --trace")
    return runner.INVALID


def _boundaries(say: Say) -> int:
    operations = runs = failures = 0
    for point in boundaries.points():
        operations, runs = point.operation, runs + 1
        if point.outcome.violation is not None:
            failures += 1
            say(str(point))
    verdict = "valid" if not failures else "invalid"
    say(f"{verdict} | boundaries={operations} runs={runs} failures={failures}")
    return runner.INVALID if failures else runner.VALID
