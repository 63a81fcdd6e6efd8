"""The jobs by name: `python -m lognode.client.spark.jobs export ...`."""

import importlib
import sys
from collections.abc import Sequence
from typing import Final

from lognode.client.protocol.errors import Unsupported

JOBS: Final = ("export", "aggregate", "replay", "fold")
_USAGE: Final = f"python -m lognode.client.spark.jobs {'|'.join(JOBS)} [--help]"


def main(arguments: Sequence[str]) -> int:
    """Run the job that the first argument names; return its exit code."""
    if arguments and arguments[0] in ("-h", "--help"):
        sys.stdout.write(f"usage: {_USAGE}\n")
        return 0
    if not arguments or arguments[0] not in JOBS:
        sys.stderr.write(f"lognode: no job is given; {_USAGE}\n")
        return 2
    try:
        from lognode.client.spark.schema import check_libraries

        check_libraries()  # before a job is imported, which an old pyspark breaks
        job = importlib.import_module(f"lognode.client.spark.jobs.{arguments[0]}")
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] not in ("pyspark", "pandas", "pyarrow"):
            raise
        sys.stderr.write(f"lognode: {error.name} is missing: pip install 'lognode[spark]'\n")
        return 1
    except Unsupported as error:
        sys.stderr.write(f"lognode: {error.message}\n")
        return 1
    code: int = job.main(arguments[1:])
    return code
