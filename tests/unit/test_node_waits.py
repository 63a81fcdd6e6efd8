"""What a node logs while it waits: one line for each reason, and not one for each attempt."""

import asyncio
import logging
from typing import Any

import pytest

from lognode.client.ports import free_ports
from lognode.client.protocol.errors import LognodeError, Unavailable
from lognode.node.config import Config
from lognode.node.directory.data_directory import Identity
from lognode.node.joining.admission import Admission
from lognode.node.joining.attempt import Attempt
from lognode.node.joining.joining import join
from lognode.node.joining.membership import Membership
from lognode.node.joining.waits import Waits

log = logging.getLogger("lognode.joining")


def told(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    return [{"message": r.getMessage(), **getattr(r, "fields", {})} for r in caplog.records]


def test_a_reason_is_told_once_and_again_after_ten_seconds(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO)

    async def main() -> None:
        now = [100.0]
        monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: now[0])
        waits = Waits(log, "the node waits", quiet_s=1.0)
        waits.end("never told")
        for at, reason in (
            (100.5, "a"), (101.0, "a"), (101.3, "a"), (102.0, "b"), (111.9, "b"), (112.0, "b"),
        ):  # fmt: skip
            now[0] = at
            waits.tell(reason)
        waits.end("the wait is over")

    asyncio.run(main())
    assert [(each["seconds"], each.get("reason")) for each in told(caplog)] == [
        (1.0, "a"), (2.0, "b"), (12.0, "b"), (12.0, None),
    ]  # fmt: skip


def test_a_join_that_fails_tells_its_reason_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    first, second = (f"127.0.0.1:{port}" for port in free_ports(2))
    config = Config(join=(first, second), join_timeout=1.5)

    async def main() -> None:
        await join(config, None, Admission(config, None), Attempt(5, 6, ""), str)

    with pytest.raises(Unavailable, match="could not join"):
        asyncio.run(main())
    (line,) = told(caplog)
    assert line["message"] == "the node waits until a node of --join registers it"
    one, two = line["reason"].split("; ")
    assert one.startswith(f"{first}: ")
    assert two.startswith(f"{second}: ")
    assert "Connection refused" in one


@pytest.mark.parametrize("is_known", [True, False])
def test_a_node_without_a_controller_says_so(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, is_known: bool
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setattr("lognode.node.joining.membership._QUIET_S", 0.1)
    left = [5]

    async def command(_: Any) -> Any:
        left[0] -= 1
        if left[0] > 0:
            raise Unavailable("the controller has no leader")
        return {}

    def knows_cluster() -> bool:
        if is_known:
            return True
        left[0] -= 1
        return left[0] < 0

    async def store(_: Any) -> None:
        raise AssertionError("nothing is stored")

    def end(error: LognodeError) -> None:
        raise error

    async def main() -> None:
        membership = Membership(
            identity=Identity("c", 1, 5, 1), process=6, body={}, knows_cluster=knows_cluster,
            command=command, store=store, on_end=end,
        )  # fmt: skip
        await membership.register()
        assert membership.registered

    asyncio.run(main())
    reason = "the controller has no leader" if is_known else "has not heard from the cluster yet"
    first, last = told(caplog)
    assert first["message"] == "the node waits for the controller to register it"
    assert reason in first["reason"]
    assert last["message"] == "the controller has registered the node"
