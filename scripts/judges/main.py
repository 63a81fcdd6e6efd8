"""Run a suite of others against nodes of this tree.

    scripts/judge librdkafka [--source DIR] [--work DIR] [--all] [--leave-out NAME]

`--all` runs the tests that are left out, too, and `--leave-out` leaves one more out. The exit code
is 1 when a test failed.
"""

import argparse
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from . import franz_go, java, kafka_go, kafkajs, librdkafka, python_suites, sarama, spark
from .brokers import brokers

SUITES = {
    "confluent-kafka": python_suites.CONFLUENT,
    "aiokafka": python_suites.AIOKAFKA,
    "franz-go": franz_go.SUITE,
    "kafka-go": kafka_go.SUITE,
    "sarama": sarama.SUITE,
    "librdkafka": librdkafka.SUITE,
    "java": java.SUITE,
    "spark": spark.SUITE,
    "kafkajs": kafkajs.SUITE,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Install and run a suite."""
    parser = argparse.ArgumentParser(prog="scripts/judge", allow_abbrev=False)
    parser.add_argument("suite", choices=sorted(SUITES))
    parser.add_argument("--source", type=Path, help="checkout of the suite, if no registry has it")
    parser.add_argument("--work", type=Path, help="folder for the suite and the data of the nodes")
    parser.add_argument("--all", action="store_true", help="also run what is left out")
    parser.add_argument("--leave-out", metavar="NAME", action="append", default=[])
    options = parser.parse_args(arguments)
    suite = SUITES[options.suite]
    work = options.work or Path(tempfile.mkdtemp(prefix="lognode-judge-"))
    work.mkdir(parents=True, exist_ok=True)
    work = work.resolve()
    left_out = {} if options.all else dict(suite.left_out)
    left_out |= dict.fromkeys(options.leave_out, "by the command line")
    suite.prepare(work, options.source)
    began = time.monotonic()
    with brokers(
        work / "nodes", suite.nodes, suite.partitions, suite.addresses, suite.advertised
    ) as addresses:
        outcome = suite.run(work, addresses, left_out)
    for name, reason in sorted(left_out.items()):
        print(f"left out  {name}: {reason}")
    for name in outcome.skipped:
        print(f"skipped   {name}")
    for name, said in outcome.failed.items():
        print(f"FAILED    {name}: {said}")
    print(
        f"{options.suite} {suite.version}: {len(outcome.passed)} passed, "
        f"{len(outcome.failed)} failed, {len(outcome.skipped)} skipped, {len(left_out)} left out, "
        f"in {time.monotonic() - began:.0f} s; logs in {work}"
    )
    return 1 if outcome.failed else 0
