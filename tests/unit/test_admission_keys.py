"""Batches with keys that their sender may not append to are refused before anything happens."""

import pytest

from lognode.client.errors import Unauthorized
from lognode.client.key_spans import KeySpans, prefix_span
from lognode.client.records import encode_batch, open_batch
from lognode.statemachine.admission import admit, admit_steps

MAY = KeySpans([prefix_span(b"user-")]).has_all


def batch(*keys: bytes) -> bytes:
    return encode_batch(keys, [b"v"] * len(keys), producer=0, epoch=0, low=1, numbers=1)


def both(*keys: bytes) -> list[int]:
    """How many records each of the two ways admits."""
    data = batch(*keys)
    steps = admit_steps(open_batch(data), b"", None, MAY)
    while True:
        try:
            next(steps)
        except StopIteration as done:
            return [admit(data, b"", None, MAY).count, done.value.count]


def test_keys_that_the_sender_may_append_to_are_admitted() -> None:
    assert both(b"user-1", b"user-2", b"user-1") == [3, 3]


@pytest.mark.parametrize("keys", [(b"x",), (b"user-1", b"x"), (b"a", b"user-1"), (b"user",)])
def test_a_key_that_the_sender_may_not_append_to_refuses_the_batch(keys: tuple[bytes, ...]) -> None:
    for admitted in (
        lambda: admit(batch(*keys), b"", None, MAY),
        lambda: list(admit_steps(open_batch(batch(*keys)), b"", None, MAY)),
    ):
        with pytest.raises(Unauthorized) as caught:
            admitted()
        assert caught.value.outcome == "not_applied"
    assert admit(batch(*keys), b"", None).count == len(keys)
