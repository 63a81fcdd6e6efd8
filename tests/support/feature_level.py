"""The feature level of a cluster of real processes, which groups, cursors and views need."""

import contextlib
from collections.abc import Iterator

import lognode
from lognode import testing


def raise_level(client: lognode.Client) -> None:
    """Raise the level as an operator would: again, while a refusal can pass. The ranges follow."""

    def done() -> bool:
        with contextlib.suppress(lognode.Conflict, lognode.Unavailable, lognode.Timeout):
            client.admin.finalize()
            return True
        return False

    testing.eventually(done, timeout_s=60, what="the level is raised")


@contextlib.contextmanager
def raised(
    cluster: testing.LocalCluster, *, logs: dict[str, list[bytes]] | None = None
) -> Iterator[lognode.Client]:
    """A client of a healthy cluster at the newest level. `logs`: logs to create before, with the
    keys at which their ranges begin."""
    with lognode.Client(cluster.servers, timeout=60) as client:
        for name, split_at in (logs or {}).items():
            client.create_log(name, exist_ok=True, split_at=split_at)
        testing.wait_healthy(cluster)
        raise_level(client)
        yield client
