"""Worker processes that run seeds and print one JSON line per outcome."""

import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence


def lines_of_workers(
    arguments: Sequence[str], processes: int, environment: Mapping[str, str] | None = None
) -> Iterator[str]:
    """Run `lognode-chaos sim` with these arguments in worker processes; return their lines.

    The lines of all workers come in turn: seeds are dealt out, so that workers keep step. All
    workers end with the iterator.
    """
    command = [sys.executable, "-m", "lognode.chaos.main", "sim", *arguments, "--worker"]
    workers = [
        subprocess.Popen(
            [*command, f"{number}/{processes}"], stdout=subprocess.PIPE, text=True, env=environment
        )
        for number in range(processes)
    ]
    try:
        streams = [worker.stdout for worker in workers if worker.stdout is not None]
        while streams:
            for stream in list(streams):
                line = stream.readline()
                if line:
                    yield line
                else:
                    streams.remove(stream)
    finally:
        for worker in workers:
            if worker.poll() is None:
                worker.terminate()
            worker.wait()
            if worker.stdout is not None:
                worker.stdout.close()
