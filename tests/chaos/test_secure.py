"""Live faults with TLS and tokens: the promises hold, and nobody else gets in.

The test that runs is `lognode-chaos test --secure`; what stands here looks at its cluster from
outside while it runs.
"""

import asyncio
import random
import ssl
from pathlib import Path
from typing import Any

import pytest
from chaos_targets import NotedLinks, until

import lognode
from lognode.chaos import store
from lognode.chaos.credentials import Credentials
from lognode.chaos.links import CLIENTS, Links, Pair, new_links
from lognode.chaos.nodes import Nodes
from lognode.chaos.plan import Plan
from lognode.chaos.runner import run_test
from lognode.chaos.strangers import Strangers
from lognode.chaos.workloads.parts import LOG
from lognode.client.connection import dial

pytestmark = pytest.mark.cluster

PLANS = [
    Plan("append", ("partition",), rate=50, time_limit_s=16, nemesis_interval_s=4, seed=3,
         secure=True),
    Plan("exactly-once", ("kill",), rate=50, time_limit_s=16, nemesis_interval_s=4, seed=3,
         secure=True),
]  # fmt: skip


def _exists(file: Path) -> bool:
    return file.exists()


async def _speaks_tls_alone(links: Links, pair: Pair, context: ssl.SSLContext) -> None:
    """Who is dialled there has a certificate of the CA, speaks TLS 1.3, and refuses all else."""
    host, port = links.address(pair).rsplit(":", 1)
    _, writer = await asyncio.open_connection(host, int(port), ssl=context)
    assert writer.get_extra_info("ssl_object").version() == "TLSv1.3"
    writer.transport.abort()
    with pytest.raises(lognode.RemoteProtocolError, match=r"speaks only TLS 1\.3"):
        await dial(host, int(port))


async def _every_link_speaks_tls(links: Links, given: Credentials) -> None:
    """Those from clients, and those between nodes."""
    left = set(links.pairs)
    assert len(left) == 9

    async def is_so() -> bool:
        for pair in list(left):
            try:
                async with asyncio.timeout(1.0):
                    await _speaks_tls_alone(links, pair, given.context)
            except (OSError, TimeoutError, lognode.Unavailable):
                continue  # cut off or killed, for now
            left.discard(pair)
        return not left

    await until(is_so, "TLS on every link", 30.0)


async def _nobody_is_let_in_without_a_token(hosts: str, given: Credentials) -> None:
    """A client with a certificate, while faults begin and end."""

    async def is_refused() -> bool:
        tls = lognode.Tls(ca=given.ca, cert=given.cert, key=given.key)
        async with lognode.AsyncClient(f"lognodes://{hosts}", tls=tls, timeout=1.0) as client:
            try:
                await client.log(LOG).append(b"k500", b"of a stranger")
            except lognode.Unauthorized as error:
                return "has no rights here" in str(error)
            except (lognode.Unavailable, lognode.Timeout):
                return False  # a killed node says nothing
        raise AssertionError("a client without a token was let in")

    await until(is_refused, "a client without a token is refused", 30.0)


async def _the_workload_may_do_no_more_than_it_has_to(hosts: str, given: Credentials) -> None:
    async with lognode.AsyncClient(given.address(hosts, given.admin_token), timeout=20) as client:
        tokens = await client.admin.tokens()
        (scopes,) = [token["scopes"] for token in tokens if token["principal"] == "workload"]
        assert scopes == ["read,append,group chaos"]


@pytest.mark.parametrize(
    "plan",
    [pytest.param(PLANS[0], marks=pytest.mark.by_hand), PLANS[1]],
    ids=lambda plan: plan.name,
)
def test_X3_X5_S1_to_S8_hold_under_faults_with_tls_and_tokens(tmp_path: Path, plan: Plan) -> None:
    given = Credentials(tmp_path / store.CLUSTER_FOLDER, {})
    said: list[str] = []

    async def run() -> dict[str, Any]:
        links = new_links()
        running = asyncio.create_task(run_test(plan, tmp_path, links, said.append))

        async def until_there_is(file: Path) -> None:
            async def is_there() -> bool:
                return running.done() or _exists(file)

            await until(is_there, file.name, 60.0)
            if running.done():
                running.result()

        await until_there_is(given.admin_token)
        await _every_link_speaks_tls(links, given)
        await until_there_is(given.workload_token)
        hosts = ",".join(links.address((CLIENTS, number)) for number in (1, 2, 3))
        await _nobody_is_let_in_without_a_token(hosts, given)
        assert not said, f"it looked only after the faults: {said}"
        await _the_workload_may_do_no_more_than_it_has_to(hosts, given)
        return await running

    results = asyncio.run(run())
    print(results["counts"], results["checkers"]["access"]["counts"])
    assert results["verdict"] == "valid", results["why"]
    assert results["counts"]["faults"] > 0
    assert min(results["checkers"]["access"]["counts"].values()) > 0
    assert store.read(tmp_path, store.TEST)["insecure"] is False
    assert not given.admin_token.exists(), "nothing secret is kept of a valid test"


def test_strangers_that_are_let_in_are_counted(tmp_path: Path) -> None:
    """Of a node that asks clients for no certificate, and a workload that may do everything."""

    async def run() -> dict[str, dict[str, int]]:
        nodes = Nodes(tmp_path, 1, NotedLinks(), secure=True)
        given = nodes.credentials
        assert given is not None
        try:
            await nodes.start(("--tls-client-auth", "none"))
            given.workload_token = given.admin_token
            strangers = Strangers(nodes, given, random.Random(0))
            trying = asyncio.create_task(strangers.run())

            async def all_tried() -> bool:
                told = strangers.told()
                return all(map(sum, zip(*(t.values() for t in told.values()), strict=True)))

            await until(all_tried, "an attempt of each kind", 30.0)
            trying.cancel()
            return strangers.told()
        finally:
            await nodes.stop()

    told = asyncio.run(run())
    let_in = {kind for kind, count in told["let_in"].items() if count}
    assert let_in == {"a client without a certificate", "a workload that creates a log"}
    assert let_in.isdisjoint(kind for kind, count in told["refused"].items() if count)
