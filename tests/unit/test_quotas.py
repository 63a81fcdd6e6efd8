"""Buckets and spenders, with a clock that the test turns."""

import random

import pytest

from lognode.client.protocol.errors import InvalidArgument, LimitExceeded, NotFound
from lognode.client.protocol.quotas import RATES
from lognode.node.quota.quotas import APPEND_BYTES, CPU, REQUESTS, Bucket, Quotas
from lognode.partitions.quota import changed, existing, tenant_of


def test_a_bucket_lets_through_a_burst_and_then_its_rate() -> None:
    bucket = Bucket(100, 0.0)
    let_through = 0
    for tick in range(10_000):
        now = tick / 1_000
        while bucket.wait_s(now) == 0 and let_through < 100_000:
            bucket.take(10, now)
            let_through += 10
    assert 100 + 990 <= let_through <= 100 + 1_010  # a burst of a second, and ten seconds


def test_a_request_larger_than_the_burst_begins_and_leaves_a_debt() -> None:
    bucket = Bucket(100, 0.0)
    bucket.take(1_000, 0.0)
    assert bucket.wait_s(0.0) == pytest.approx(9.0, abs=0.01)
    assert bucket.wait_s(8.9) > 0
    assert bucket.wait_s(9.01) == 0


def test_the_reported_wait_is_long_enough() -> None:
    rng = random.Random(7)
    for rate in (1, 7, 1_000, 10**12):
        bucket, now = Bucket(rate, 0.0), 0.0
        for _ in range(100):
            bucket.take(rng.uniform(0, 3 * rate), now)
            now += bucket.wait_s(now)
            assert bucket.wait_s(now) == 0


def test_a_bucket_holds_a_second_at_most() -> None:
    bucket = Bucket(10, 0.0)
    bucket.take(-1_000, 0.0)
    bucket.take(10, 3_600.0)
    assert bucket.wait_s(3_600.0) > 0


def test_the_refusal_names_the_quota_that_takes_longest() -> None:
    quotas = Quotas(lambda: 0.0)
    quotas.learn({"default": {"requests": 1, "append_bytes": 10}})
    spender = quotas.principal("10.0.0.1", "default")
    spender.take(REQUESTS, 2, 0.0)
    spender.take(APPEND_BYTES, 100, 0.0)
    found = spender.refusal((REQUESTS, APPEND_BYTES), 0.0)
    assert found is not None
    assert (found.quota, found.limit) == ("append_bytes", 10)
    assert found.retry_after_s == pytest.approx(9.0, abs=0.01)
    assert spender.refusal((), 0.0) is None


def test_principals_of_a_class_have_a_quota_each_and_all_of_a_tenant_share_one() -> None:
    quotas = Quotas(lambda: 0.0)
    quotas.learn({"default": {"requests": 1}, "acme/": {"requests": 1}})
    quotas.principal("a", "default").take(REQUESTS, 2, 0.0)
    assert quotas.principal("a", "default").refusal((REQUESTS,), 0.0)
    assert not quotas.principal("b", "default").refusal((REQUESTS,), 0.0)
    quotas.tenant("acme/").take(REQUESTS, 2, 0.0)
    assert quotas.tenant("acme/").refusal((REQUESTS,), 0.0)
    assert not quotas.tenant("").is_limited


def test_a_limit_that_changes_holds_at_once_and_one_that_stays_keeps_its_debt() -> None:
    quotas = Quotas(lambda: 0.0)
    spender = quotas.principal("a", "gold")
    payer = quotas.payer(spender, None)
    payer.use(REQUESTS, 100)
    assert not payer.is_limited
    quotas.learn({"gold": {"requests": 10}})
    assert payer.is_limited
    payer.use(REQUESTS, 100)
    quotas.learn({"gold": {"requests": 10, "cpu_ms": 5}})
    assert spender.refusal((REQUESTS,), 0.0)
    quotas.learn({})
    assert not payer.is_limited
    assert spender.total()[REQUESTS] == 200


def test_a_million_names_leave_a_bounded_number_of_principals() -> None:
    quotas = Quotas(lambda: 0.0, spenders_max=100)
    connected = quotas.principal("connected", "default")
    connected.connections = 1
    for name in range(10_000):
        quotas.principal(str(name), "default")
    assert len(quotas.principals) <= 101
    assert quotas.principal("connected", "default") is connected


def test_the_use_of_forgotten_tenants_stays_counted() -> None:
    quotas = Quotas(lambda: 0.0, spenders_max=10)
    someone = quotas.principal("someone", "default")
    for name in range(20):
        quotas.payer(someone, quotas.tenant(f"{name}/")).use(REQUESTS, 1)
    assert quotas.has_many_tenants
    quotas.keep_tenants({"3/", "4/"})
    assert quotas.tenants.keys() == {"3/", "4/"}
    assert quotas.others[REQUESTS] == 18


def test_tenants_are_the_first_part_of_log_names() -> None:
    assert tenant_of("acme/orders") == "acme/"
    assert tenant_of("acme/orders/old") == "acme/"
    assert tenant_of("orders") == ""


def test_limits_are_changed_one_by_one() -> None:
    first = changed({}, "gold", {"requests": 5, "cpu_ms": 7})
    assert first == {"requests": 5, "cpu_ms": 7}
    assert changed({"gold": first}, "gold", {"requests": None, "read_bytes": 1}) == {
        "read_bytes": 1, "cpu_ms": 7,
    }  # fmt: skip
    assert changed({}, "acme/", dict.fromkeys(RATES, 1)) == dict.fromkeys(RATES, 1)


@pytest.mark.parametrize(
    ("name", "limits"),
    [
        ("gold", {}), ("gold", None), ("gold", {"speed": 1}), ("gold", {"requests": 0}),
        ("gold", {"requests": 1.5}), ("gold", {"requests": 1 << 60}), ("a/b", {"requests": 1}),
        ("/", {"requests": 1}), ("", {"requests": 1}), (5, {"requests": 1}),
        ("a b", {"requests": 1}),
    ],
)  # fmt: skip
def test_a_malformed_quota_is_refused(name: object, limits: object) -> None:
    with pytest.raises(InvalidArgument):
        changed({}, name, limits)  # type: ignore[arg-type]


def test_the_number_of_quotas_is_bounded() -> None:
    many = {f"q{number}": {"requests": 1} for number in range(1_000)}
    assert changed(many, "q1", {"requests": 2}) == {"requests": 2}
    with pytest.raises(LimitExceeded):
        changed(many, "one-more", {"requests": 1})


def test_a_quota_that_is_not_there_is_not_found() -> None:
    with pytest.raises(NotFound):
        existing({}, "gold")


def test_a_request_is_counted_once_by_its_principal_and_once_by_its_tenant() -> None:
    quotas = Quotas(lambda: 0.0)
    alice, bob = quotas.principal("alice", "default"), quotas.principal("bob", "default")
    acme = quotas.tenant("acme/")
    for principal, tenant, times in ((alice, acme, 3), (alice, None, 4), (bob, acme, 5)):
        principal.connections = 1
        for _ in range(times):
            quotas.payer(principal, tenant).use(REQUESTS, 1)
            quotas.payer(principal, tenant).ran(0.25)
    for _ in range(2):  # whenever it is read, and after it was read
        assert alice.total()[REQUESTS] == 7
        quotas.fold()
        assert acme.used[REQUESTS] == 8
    quotas.left(bob)
    assert bob.total()[REQUESTS] == 5
    assert (acme.used[REQUESTS], acme.used[CPU]) == (8, 2_000)


def test_both_quotas_of_a_principal_and_its_tenant_refuse() -> None:
    quotas = Quotas(lambda: 0.0)
    quotas.learn({"default": {"requests": 10}, "acme/": {"requests": 2}})
    alice, bob = quotas.principal("alice", "default"), quotas.principal("bob", "default")
    acme = quotas.tenant("acme/")
    quotas.payer(alice, acme).use(REQUESTS, 3)
    found = quotas.payer(bob, acme).refusal((REQUESTS,))
    assert found is not None
    assert found.spender is acme
    assert not quotas.payer(bob, None).refusal((REQUESTS,))
    quotas.payer(alice, None).use(REQUESTS, 8)
    found = quotas.payer(alice, None).refusal((REQUESTS,))
    assert found is not None
    assert found.spender is alice
