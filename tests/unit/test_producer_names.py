"""Named producers in the metadata: ids, epochs, bounds, expiry."""

from typing import Any

import pytest
from metadata_log import Controller

from lognode.client.protocol import limits
from lognode.client.protocol.errors import Unauthorized
from lognode.partitions import buckets
from lognode.partitions.grants import granted
from lognode.partitions.metadata import Metadata
from lognode.partitions.producers import BLOCK, FIRST_NAMED_ID, Named
from lognode.partitions.tokens import first_token

KEY = b"0123456789abcdef"
DAY_MS = 86_400_000


def opened(controller: Controller, name: str, at_ms: int = 1_000, **fields: Any) -> dict[str, Any]:
    command = {"name": name, "owner": "", "at_ms": at_ms, "key": KEY, **fields}
    answer: dict[str, Any] = controller.do("open_named", **command)
    return answer


@pytest.fixture
def one() -> Controller:
    return Controller().nodes(1)


@pytest.mark.parametrize("forget", ["expire", "delete"])
def test_S8_a_name_that_was_forgotten_has_the_same_id_and_a_higher_epoch(
    one: Controller, forget: str
) -> None:
    """With another id the ranges would know neither its numbers nor whom to fence."""
    before = opened(one, "import")["ok"]
    assert before["id"] >= FIRST_NAMED_ID
    again = opened(one, "import")["ok"]
    assert (again["id"], again["epoch"] > before["epoch"]) == (before["id"], True)
    other = opened(one, "other")["ok"]
    assert other["id"] != before["id"]
    if forget == "delete":
        assert "ok" in one.do("delete_producer", name="import")
    else:
        number = one.metadata.producers.numbers["import"]
        told = one.do("expire_producers", numbers=[number, 99], before_ms=8 * DAY_MS)
        assert told == {"ok": {"expired": 1}}
    assert one.metadata.producers.named("import") is None
    # The first key that was ever committed counts, also when the proposer has another one.
    after = opened(one, "import", key=bytes(16))["ok"]
    assert after["id"] == before["id"]
    assert after["epoch"] > max(again["epoch"], other["epoch"])


def test_a_name_that_was_opened_since_does_not_expire(one: Controller) -> None:
    opened(one, "a", at_ms=DAY_MS)
    number = one.metadata.producers.numbers["a"]
    opened(one, "a", at_ms=9 * DAY_MS)
    for before_ms in (8 * DAY_MS, 9 * DAY_MS):
        answer = one.do("expire_producers", numbers=[number], before_ms=before_ms)
        assert answer == {"ok": {"expired": 0}}


def test_nobody_else_learns_of_producers(one: Controller) -> None:
    """38,000 names made an image of 9 MiB that went to every node at every opening."""
    version, image = one.metadata.version, one.metadata.image()
    for name in "abc":
        opened(one, name)
    one.do("open_anonymous")
    one.do("delete_producer", name="b")
    assert one.metadata.version == version
    for name in image.keys() - {"named", "producer_ids"}:
        assert one.metadata.image()[name] == image[name]


def test_anonymous_ids_are_given_in_blocks(one: Controller) -> None:
    assert one.do("open_anonymous")["ok"] == {"id": 1, "count": BLOCK, "epoch": 1}
    assert one.do("open_anonymous")["ok"]["id"] == 1 + BLOCK


@pytest.mark.parametrize(
    ("limit", "allowed"),
    [
        ("producers_named_per_principal_max", 2), ("producers_named_max", 2),
        ("producer_names_bytes_per_principal_max", 8), ("producer_names_bytes_max", 8),
    ],
)  # fmt: skip
def test_names_are_bounded_in_number_and_bytes(
    one: Controller, limit: str, allowed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened(one, "aaaa")
    opened(one, "bbbb")
    monkeypatch.setattr(limits, limit, allowed)
    error = opened(one, "c")["error"]
    assert error["code"] == "LIMIT_EXCEEDED"
    assert error["fields"]["limit"] == limit
    assert error["fields"]["allowed"] == allowed
    assert "ok" in opened(one, "aaaa"), "a name that is known takes no more room"
    if "per_principal" in limit:
        assert "ok" in opened(one, "c", owner="somebody else")
        one.do("delete_producer", name="c")
    one.do("delete_producer", name="aaaa")
    assert "ok" in opened(one, "c")


@pytest.mark.parametrize(
    "change", [{"name": ""}, {"name": "x" * 257}, {"name": 5}, {"key": b"short"}, {"key": None},
               {"owner": 7}, {"at_ms": -1}],
)  # fmt: skip
def test_a_malformed_opening_is_refused(one: Controller, change: dict[str, Any]) -> None:
    assert opened(one, **{"name": "a", **change})["error"]["code"] == "INVALID_ARGUMENT"


def test_a_name_that_is_not_there_cannot_be_deleted(one: Controller) -> None:
    error = one.do("delete_producer", name="a")["error"]
    assert (error["code"], "producer list" in error["message"]) == ("NOT_FOUND", True)


def test_S8_names_of_a_version_before_keep_their_ids_and_never_expire(one: Controller) -> None:
    """Entries of its log are applied as they were then, and its images are read."""
    assert one.do("open_producer", name="old")["ok"] == {"id": 1, "count": 1, "epoch": 1}
    assert one.do("open_producer", name=None)["ok"] == {"id": 2, "count": BLOCK, "epoch": 1}
    assert one.do("open_producer", name="old")["ok"]["epoch"] == 2
    image = one.metadata.image()
    del image["named"], image["producer_ids"]
    image["producers"] = {"old": [1, 2], "other": [7, 40]}
    image["next_ids"]["producer"] = 3_000
    one.metadata = Metadata.from_image(image)
    assert one.metadata.producers.named("old") == Named(1, "old", 1, 2, 0, "")
    numbers = list(one.metadata.producers)
    assert one.do("expire_producers", numbers=numbers, before_ms=1 << 50)["ok"] == {"expired": 0}
    again = opened(one, "old")["ok"]
    assert (again["id"], again["epoch"]) == (1, 41)
    assert opened(one, "new")["ok"]["epoch"] == 42
    assert one.do("open_anonymous")["ok"]["id"] == 3_000


def with_tokens(one: Controller) -> Controller:
    assert "ok" in one.do("create_token", **first_token("0" * 16, b"d" * 32), at_ms=5)
    return one


def test_S9_a_name_belongs_to_the_principal_that_opened_it(one: Controller) -> None:
    """Any principal could open another's name, and fenced its owner."""
    with_tokens(one)
    first = opened(one, "import", owner="ann")["ok"]
    error = opened(one, "import", owner="bob")["error"]
    assert error["code"] == "UNAUTHORIZED"
    assert "belongs to ann" in error["message"]
    again = opened(one, "import", owner="ann")["ok"]
    assert (again["id"], again["epoch"] > first["epoch"]) == (first["id"], True)
    one.do("delete_producer", name="import")
    taken = opened(one, "import", owner="bob")["ok"]
    assert taken["id"] != first["id"], "bob's numbers are told from ann's"
    one.do("delete_producer", name="import")
    assert opened(one, "import", owner="ann")["ok"]["id"] == first["id"]


def test_S8_a_name_from_before_tokens_goes_to_its_first_opener_and_never_expires(
    one: Controller,
) -> None:
    before = opened(one, "import")["ok"]
    assert "grant" not in before
    with_tokens(one)
    claimed = opened(one, "import", owner="ann")["ok"]
    assert claimed["id"] == before["id"]
    assert opened(one, "import", owner="bob")["error"]["code"] == "UNAUTHORIZED"
    own = opened(one, "own", owner="ann")["ok"]
    numbers = list(one.metadata.producers)
    told = one.do("expire_producers", numbers=numbers, before_ms=8 * DAY_MS)
    assert told == {"ok": {"expired": 1}}, "another id would follow from the name that was claimed"
    assert opened(one, "import", owner="ann")["ok"]["id"] == before["id"]
    assert opened(one, "own", owner="ann")["ok"]["id"] == own["id"]


def test_S8_with_tokens_ids_come_with_a_grant_that_every_node_can_check(one: Controller) -> None:
    with_tokens(one)
    version = one.metadata.version
    name = opened(one, "import", owner="ann")["ok"]
    assert one.metadata.version == version + 1, "all nodes get the key"
    block = one.do("open_anonymous", owner="bob", key=b"f" * 16)["ok"]
    assert one.metadata.version == version + 1, "the first key stays"
    assert one.metadata.producer_key == KEY
    assert granted(KEY, name["grant"], "ann") == range(name["id"], name["id"] + 1)
    assert granted(KEY, block["grant"], "bob") == range(block["id"], block["id"] + BLOCK)
    for grant, owner in ((name["grant"], "bob"), (block["grant"], "ann"), (b"", "ann")):
        with pytest.raises(Unauthorized):
            granted(KEY, grant, owner)
    other = buckets.copy(one.metadata)
    assert other.producer_key == KEY, "the table of tokens is public among nodes"
