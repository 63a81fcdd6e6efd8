"""Which records an idempotent producer may send again."""

from lognode.node.kafka.recent_batches import BATCHES, PLACES_MAX, RECORDS, RecentBatches


def test_the_last_batches_may_come_again() -> None:
    recent, place = RecentBatches(), ("topic", 0, 1)
    firsts = [RECORDS + 100 * n for n in range(9)]
    for at, first in enumerate(firsts):
        wanted = first - RECORDS if at < BATCHES else firsts[at - BATCHES]
        assert recent.oldest(place, first) == wanted
    assert recent.oldest(place, firsts[4]) == firsts[3], "a batch that comes again"
    assert recent.oldest(place, firsts[1]) == firsts[1], "and one that nobody should send any more"
    assert recent.oldest(("topic", 1, 1), 70_000) == 70_000 - RECORDS
    for producer in range(PLACES_MAX):
        recent.oldest(("topic", 2, producer), 1)
    assert recent.oldest(place, firsts[-1] + 100) == firsts[-1] + 100 - RECORDS, "forgotten"
