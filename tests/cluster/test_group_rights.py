"""What a token allows with consumer groups: keys to consume, and who decides."""

import asyncio
import json
from pathlib import Path

import pytest
from feature_level import raise_level

import lognode
from lognode import testing
from lognode.client.protocol.errors import InvalidArgument, NotFound, Unauthorized
from lognode.client.protocol.groups import GROUP_TAKE

pytestmark = pytest.mark.cluster


def test_a_token_consumes_its_own_keys_alone(tmp_path: Path) -> None:
    with testing.cluster(tmp_path, 1, auth=True) as cluster:
        testing.wait_healthy(cluster)
        servers = cluster.servers.partition("?")[0]
        with lognode.Client(cluster.servers, timeout=20) as admin:
            raise_level(admin)
            log = admin.create_log("acme/a", split_at=[b"m"])
            log.append_many([("user-1", b"mine"), ("admin", b"secret"), ("zoo", b"other")])
            for name, prefix in (("all", None), ("users", "user-")):
                with log.consume(name, prefix=prefix) as consumer:
                    assert consumer.group.name == name
                log.register_view(f"seen-by-{name}", group=name)
            reader = admin.admin.create_token("reader", ["read acme/a user-*"])["token"]
            keeper = admin.admin.create_token("keeper", ["group acme/a"])["token"]

        with lognode.Client(servers, token=reader, timeout=20) as client:
            own = client.log("acme/a")
            assert [info.name for info in own.groups()] == ["users"]
            with pytest.raises(NotFound):
                own.group("all").lag()
            assert [info.name for info in own.views()] == ["seen-by-users"]
            with pytest.raises(Unauthorized, match="verb group"):
                own.register_view("mine", group="users")
            with pytest.raises(Unauthorized, match="verb group"):
                own.delete_view("seen-by-users")
            with own.consume("users") as consumer:
                batch = next(consumer)
                assert (batch.key, batch.values) == (b"user-1", [b"mine"])
                batch.ack()
            assert own.group("users").lag().entries == 0
            with pytest.raises(Unauthorized, match="verb group"):
                own.consume("mine", prefix="user-").open()
            with pytest.raises(Unauthorized, match="verb group"):
                own.group("users").reset("earliest")
            with pytest.raises(Unauthorized, match="verb group"):
                own.group("users").delete()

        async def forged(prefix: bytes) -> None:
            """Take from the group of all keys, whose id is easy to guess."""
            async with lognode.AsyncClient(servers, token=reader, timeout=20) as client:
                cluster_ = client.log("acme/a")._cluster
                body = {"group": 1, "consumer": 5, "prefix": prefix, "fence": 1, "holds": []}
                await cluster_.call(
                    cluster_.log("acme/a"), b"user-1", GROUP_TAKE, body,
                    deadline=cluster_.now() + 10,
                )  # fmt: skip

        with pytest.raises(Unauthorized):
            asyncio.run(forged(b""))
        with pytest.raises(InvalidArgument, match="keys without the prefix"):
            asyncio.run(forged(b"user-"))

        with lognode.Client(servers, token=keeper, timeout=20) as client:
            own = client.log("acme/a")
            assert [info.name for info in own.groups()] == ["all", "users"]
            assert [info.name for info in own.views()] == ["seen-by-all", "seen-by-users"]
            own.group("users").reset("earliest")
            with pytest.raises(Unauthorized):
                own.group("users").lag()
            own.group("users").delete()

        lines = map(json.loads, cluster.nodes[0].log_path.read_text().splitlines())
        asked = [
            (record["operation"], record["principal"])
            for record in (line["record"] for line in lines if line["logger"] == "lognode.audit")
        ]
        for operation in ("group_decide", "group_delete"):
            assert (operation, "keeper") in asked, "administration is in the audit log (X7)"
