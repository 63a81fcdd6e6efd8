"""Answers that list something: the largest of each fits a frame, and what grows comes in pages."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from metadata_log import Controller

from lognode.client import tokens
from lognode.client.protocol import Operation, frame, frames, limits
from lognode.client.protocol.cluster import HEALTH, TOKEN_LIST
from lognode.client.protocol.invites import NODE_INVITES
from lognode.client.protocol.quotas import COUNTERS, KINDS, QUOTA_LIST, STORED, USAGE
from lognode.client.protocol.scopes import VERBS, Scope
from lognode.node.access.token_service import TokenService
from lognode.node.serving import health
from lognode.partitions.tokens import TokenRecord

NUMBER = limits.quota_max
NOW_MS = 1_800_000_000_000


def long_scopes(count: int) -> tuple[Scope, ...]:
    """As long as scopes may be."""
    return tuple(
        Scope(
            frozenset(("read", "append", "trim")),
            f"{at:0{limits.log_name_bytes_max}}*",
            b"%0*d*" % (limits.key_bytes_max, at),
        )
        for at in range(count)
    )


def token(number: int, scopes: int) -> TokenRecord:
    """A token whose fields are as long as they may be, with so many scopes."""
    return TokenRecord(
        token_id=f"{number:016x}",
        principal="\U0001f600" * limits.principal_name_chars_max,
        scopes=long_scopes(scopes),
        certificate="\U0001f600" * limits.certificate_holder_chars_max,
        created_ms=NOW_MS,
        expires_ms=NOW_MS,
        quota_class="\U0001f600" * limits.quota_class_chars_max,
    )


class Cluster:
    """A node with those tokens."""

    def __init__(self, found: dict[str, TokenRecord]) -> None:
        self.tokens = found
        self.rooms = 0
        self.service = TokenService(
            command=self._nothing, refresh=self._refresh, metadata=lambda: self,  # type: ignore[arg-type, return-value]
            proves_nodes=True,
        )  # fmt: skip

    async def _refresh(self) -> None: ...

    async def _nothing(self, command: dict[str, Any]) -> dict[str, Any]:
        raise AssertionError(command)

    async def _room(self) -> None:
        self.rooms += 1

    def page(self, after: str | None = None, **asked: Any) -> dict[str, Any]:
        """A page, checked as the asker checks it, within what is paid for it."""
        body = TOKEN_LIST.request.check({"after": after, **asked})
        answer = asyncio.run(self.service.list(body, self._room))
        fits(TOKEN_LIST, answer)
        return TOKEN_LIST.check_answer(answer)

    def pages(self, **asked: Any) -> list[list[str]]:
        """The ids of all pages."""
        found, after = [], None
        while True:
            page = self.page(after, **asked)
            found.append([row["id"] for row in page["tokens"]])
            after = page["next"]
            if after is None:
                return found


def fits(operation: Operation, answer: dict[str, Any]) -> None:
    """The answer is one that the table allows, in a frame, within the bytes paid for it."""
    operation.check_answer(answer)
    size = len(frame.encode(1, frames.OK, answer))
    assert size <= operation.answer_bytes({}) <= limits.frame_bytes_max, (operation, size)


def test_pages_of_tokens_have_each_token_once_in_the_order_of_ids() -> None:
    many = {each.token_id: each for each in (token(at * 7 % 1_301, 1) for at in range(1_301))}
    cluster = Cluster(many)
    pages = cluster.pages()
    assert [each for page in pages for each in page] == sorted(many)
    assert cluster.rooms == len(pages) > 1
    small = cluster.pages(limit=100)
    assert [len(page) for page in small] == [100] * 13 + [1]
    assert [each for page in small for each in page] == sorted(many)


def test_a_page_of_tokens_is_bounded_in_count_and_in_bytes() -> None:
    short = {
        f"{at:016x}": TokenRecord(f"{at:016x}", "app", (Scope(frozenset(("read",))),))
        for at in range(limits.tokens_page_max * 2)
    }
    assert [len(page) for page in Cluster(short).pages()] == [limits.tokens_page_max] * 2
    long = {
        each.token_id: each for each in (token(at, limits.token_scopes_max) for at in range(99))
    }
    pages = Cluster(long).pages()
    assert sum(map(len, pages)) == 99
    assert max(map(len, pages)) <= limits.tokens_page_bytes // (10 * limits.KIB) + 1
    assert Cluster({}).pages() == [[]]


def test_a_token_that_comes_or_goes_between_two_pages_moves_no_other_token() -> None:
    many = {f"{at:016x}": token(at, 1) for at in range(10, 40)}
    cluster = Cluster(many)
    first = cluster.page(limit=10)
    for gone in (f"{12:016x}", f"{19:016x}", f"{25:016x}"):
        del many[gone]
    many[f"{5:016x}"] = token(5, 1)
    rest = [row["id"] for row in cluster.page(first["next"])["tokens"]]
    assert rest == [f"{at:016x}" for at in range(20, 40) if at != 25]


def test_no_page_of_tokens_has_a_digest() -> None:
    cluster = Controller()
    cluster.nodes(1)
    text = tokens.draw()
    made = {"id": tokens.id_of(text), "digest": tokens.digest_of(text), "at_ms": NOW_MS}
    scopes = [Scope(frozenset(VERBS)).to_wire()]
    assert "ok" in cluster.do("create_token", principal="admin", scopes=scopes, **made)
    page = Cluster(cluster.metadata.tokens).page()
    assert [row["principal"] for row in page["tokens"]] == ["admin"]
    assert made["digest"] not in frame.encode(1, frames.OK, page)


def quotas() -> dict[str, Any]:
    """As many quotas as there may be, with all limits."""
    limited = dict.fromkeys(KINDS, NUMBER)
    name = "q" * (limits.log_name_bytes_max - 4)
    return {
        "quotas": [{"name": f"{name}{at:04}", "limits": limited} for at in range(limits.quotas_max)]
    }


def invitations() -> dict[str, Any]:
    """As many invitations as there may be."""
    one = {"id": "0" * 16, "by": "b" * limits.inviter_bytes_max, "created_ms": NOW_MS,
           "expires_ms": NOW_MS}  # fmt: skip
    return {"invites": [one] * limits.invites_max}


def usage() -> dict[str, Any]:
    """What a node says that serves as many tenants and principals as it remembers."""
    used = dict.fromkeys(COUNTERS, NUMBER)
    tenant = {"name": "t" * limits.log_name_bytes_max, **used, STORED: NUMBER}
    principal = {"name": "p" * 512, **used}
    remembered = max(limits.spenders_max, limits.logs_max)
    return {
        "since_ms": NOW_MS,
        "tenants": [tenant] * remembered,
        "principals": [principal] * limits.usage_rows_max,
    }


def bad_health() -> dict[str, Any]:
    """What a node says when every range is without leader and has too few members, and replicas
    are damaged, in a cluster of the longest names."""
    line = f"node 1's replica of range 50000 of log {'l' * limits.log_name_bytes_max} is damaged: "
    reasons = [line + "r" * 4 * limits.KIB] * (2 * limits.ranges_max)
    return {"ok": False, "reasons": health.shortened(reasons)}


@pytest.mark.parametrize(
    ("operation", "largest"),
    [(QUOTA_LIST, quotas), (NODE_INVITES, invitations), (USAGE, usage), (HEALTH, bad_health)],
    ids=["quotas", "invitations", "usage", "health"],
)
def test_the_largest_list_fits_an_answer(
    operation: Operation, largest: Callable[[], dict[str, Any]]
) -> None:
    fits(operation, largest())


def test_an_answer_about_health_counts_the_reasons_that_it_leaves_out() -> None:
    few = [f"reason {at}" for at in range(limits.health_reasons_max)]
    assert health.shortened(few) == few
    told = health.shortened([*few, "a", "b"])
    assert told[:-1] == few
    assert told[-1].startswith("2 more reasons")
