"""Batches with keys that their sender may not append to are refused before anything happens."""

import pytest

from lognode.client.accepting.access import Allowed
from lognode.client.protocol.errors import Unauthorized
from lognode.client.protocol.key_spans import KeySpans, prefix_span
from lognode.client.protocol.records import encode_batch, open_batch
from lognode.statemachine.admission import admit, admit_steps

MAY = Allowed(KeySpans([prefix_span(b"user-")]), range(5, 7))


def batch(*keys: bytes, producer: int = 0) -> bytes:
    return encode_batch(keys, [b"v"] * len(keys), producer=producer, epoch=1, low=1, numbers=1)


def both(*keys: bytes, producer: int = 0) -> list[int]:
    """How many records each of the two ways admits."""
    data = batch(*keys, producer=producer)
    steps = admit_steps(open_batch(data), b"", None, MAY.check)
    while True:
        try:
            next(steps)
        except StopIteration as done:
            return [admit(data, b"", None, MAY.check).count, done.value.count]


def test_keys_that_the_sender_may_append_to_are_admitted() -> None:
    assert both(b"user-1", b"user-2", b"user-1") == [3, 3]


@pytest.mark.parametrize("keys", [(b"x",), (b"user-1", b"x"), (b"a", b"user-1"), (b"user",)])
def test_a_key_that_the_sender_may_not_append_to_refuses_the_batch(keys: tuple[bytes, ...]) -> None:
    for admitted in (
        lambda: admit(batch(*keys), b"", None, MAY.check),
        lambda: list(admit_steps(open_batch(batch(*keys)), b"", None, MAY.check)),
    ):
        with pytest.raises(Unauthorized) as caught:
            admitted()
        assert caught.value.outcome == "not_applied"
    assert admit(batch(*keys), b"", None).count == len(keys)


def test_S8_a_producer_id_of_somebody_else_refuses_the_batch() -> None:
    """A stranger could append under any id: the owner's next record passed for a retry."""
    for producer in (0, 5, 6):
        assert both(b"user-1", producer=producer) == [1, 1]
    for producer in (4, 7, 1 << 62):
        with pytest.raises(Unauthorized, match=f"does not cover producer id {producer}"):
            both(b"user-1", producer=producer)
    data = batch(b"x", producer=9)
    assert admit(data, b"", None, Allowed(None, range(9, 10)).check).count == 1
    assert admit(data, b"", None).count == 1
