"""The frame codec: any cut of the stream gives the same frames; bad bytes end it, cheaply."""

import os
import random
import re
import struct
import time

import google_crc32c
import msgpack
import pytest

from lognode.client.protocol import frame, limits
from lognode.client.protocol.errors import InvalidArgument, LimitExceeded
from lognode.client.protocol.frame import Broken, Decoder, Frame


def framed(payload: bytes) -> bytes:
    return struct.pack(">II", len(payload), google_crc32c.value(payload)) + payload


def only_broken(data: bytes) -> str:
    events = Decoder().feed(data)
    assert len(events) == 1
    assert isinstance(events[0], Broken)
    assert events[0].error.outcome == "unknown"
    return str(events[0].error)


def test_frames_survive_any_cut_of_the_stream() -> None:
    seed = int.from_bytes(os.urandom(4), "big")
    print("seed", seed)
    rng = random.Random(seed)
    messages = [(i, 40, {"v": rng.randbytes(rng.choice((0, 1, 7, 300, 9000)))}) for i in range(60)]
    stream = b"".join(frame.encode(*message) for message in messages)
    for _ in range(20):
        decoder, at = Decoder(), 0
        got: list[Frame] = []
        while at < len(stream):
            step = rng.choice((1, 2, 7, 8, 9, 100, 5000, 100_000))
            got += [e for e in decoder.feed(stream[at : at + step]) if isinstance(e, Frame)]
            at += step
        assert [e[:3] for e in got] == messages
        assert sum(e.size for e in got) == len(stream)
        assert decoder.buffered == 0


def test_an_absurd_length_is_refused_before_anything_is_kept() -> None:
    decoder = Decoder()
    events = decoder.feed(struct.pack(">II", limits.frame_bytes_max + 1, 0))
    assert isinstance(events[0], Broken)
    assert decoder.buffered == 0
    assert decoder.feed(b"x" * 1000) == []


def test_strangers_may_send_small_frames_only() -> None:
    decoder = Decoder.of_stranger()
    events = decoder.feed(struct.pack(">II", limits.handshake_bytes_max + 1, 0))
    assert isinstance(events[0], Broken)


def test_http_is_recognised_before_the_handshake_only() -> None:
    for data, told in ((b"GET / HTTP/1.1", "an HTTP request"), (b"HTTP/1.1 400", "answers HTTP")):
        (broken,) = Decoder.of_stranger().feed(data)
        assert told in str(broken)
        (broken,) = Decoder().feed(data)
        assert "bytes; at most" in str(broken)


def test_a_wrong_checksum_ends_the_stream_after_the_frames_before_it() -> None:
    good = frame.encode(1, 40, {})
    bad = bytearray(frame.encode(2, 40, {"a": 1}))
    bad[-1] ^= 1
    events = Decoder().feed(good + bytes(bad) + good)
    assert [type(e) for e in events] == [Frame, Broken]
    assert "checksum" in str(events[1])


@pytest.mark.parametrize(
    ("payload", "says"),
    [
        (b"\x91" * 600 + b"\xc0", "not a message"),
        (b"\x93\x01\x28\x81\xa1a" + b"\x91" * 20 + b"\xc0", "nested deeper"),
        (b"\xdd\xff\xff\xff\xff", "unpack"),
        (b"\xdc\xff\xff" + b"\x90" * 10, "unpack"),
        (
            msgpack.packb([1, 40, {"a": [[] for _ in range(100_000)], "b": [{}] * 40_000}]),
            "arrays",
        ),
        (msgpack.packb([1, 40, {"a": [0] * (limits.frame_array_max + 1)}]), "unpack"),
        (msgpack.packb([1, 40, msgpack.ExtType(5, b"x")]), "extension"),
        (msgpack.packb([1, 40, {}]) + b"\x00", "unpack"),
        (b"", "unpack"),
        (msgpack.packb({"a": 1}), "not a message"),
        (msgpack.packb([1, 40]), "not a message"),
        (msgpack.packb([-1, 40, {}]), "request id"),
        (msgpack.packb([True, 40, {}]), "request id"),
        (msgpack.packb([1, 0, {}]), "kind"),
        (msgpack.packb([1, "x" * 65, {}]), "kind"),
        (msgpack.packb([1, b"op", {}]), "kind"),
        (msgpack.packb([1, 40, []]), "map"),
        (b"\x93\x01\xa2\xff\xfe\x80", "unpack"),
    ],
)
def test_a_malformed_payload_is_refused(payload: bytes, says: str) -> None:
    assert re.search(says, only_broken(framed(payload)))


def test_depth_at_the_limit_passes() -> None:
    body: object = 1
    for _ in range(limits.frame_nesting_max - 2):
        body = [body]
    wide: list[list[int]] = [[] for _ in range(30)]
    assert isinstance(Decoder().feed(frame.encode(1, 40, {"a": body, "b": wide}))[0], Frame)
    assert isinstance(Decoder().feed(frame.encode(1, 40, {"a": [body], "b": wide}))[0], Broken)


def test_unknown_fields_behind_the_body_are_ignored() -> None:
    event = Decoder().feed(framed(msgpack.packb([7, 4, {"a": 1}, "later"])))[0]
    assert isinstance(event, Frame)
    assert event[:3] == (7, 4, {"a": 1})


@pytest.mark.parametrize("key", [2**61, 20_001, -1, 2.5, True])
@pytest.mark.parametrize("count", [257, 20_000])
def test_X1_a_large_map_of_numbers_that_may_have_equal_hashes_is_refused(
    key: object, count: int
) -> None:
    """86,000 such keys, in 516 KB, kept the node busy for six seconds."""
    keys = [*range(2, count + 1), key]

    def decoded(keys: list[object]) -> object:
        body = dict.fromkeys(keys, 0)
        assert len(body) == len(keys)
        (event,) = Decoder().feed(framed(msgpack.packb([1, 40, body])))
        return event.error if isinstance(event, Broken) else event

    assert "a map of over 256 elements has the key" in str(decoded(keys))
    assert "a map of over 256 elements" not in str(decoded(keys[:-1]))
    assert "a map of over 256 elements" not in str(decoded([key, *range(10, 200)]))
    assert "a map of over 256 elements" not in str(decoded([b"%d" % each for each in keys[:-1]]))


def test_a_frame_over_the_limit_is_not_encoded() -> None:
    with pytest.raises(LimitExceeded) as caught:
        frame.encode(1, 40, {"v": bytes(limits.frame_bytes_max)})
    assert caught.value.outcome == "not_applied"


def test_a_number_of_more_than_64_bits_is_refused_and_not_raised_as_it_comes() -> None:
    with pytest.raises(InvalidArgument, match="64 bits") as caught:
        frame.encode(1, 40, {"range": 1 << 64})
    assert caught.value.outcome == "not_applied"


def test_fuzz_damage_is_found_and_never_raises() -> None:
    seed = int.from_bytes(os.urandom(4), "big")
    print("seed", seed)
    rng = random.Random(seed)
    for _ in range(3000):
        frames = [
            frame.encode(i + 1, 40, {"v": rng.randbytes(rng.randrange(40))}) for i in range(3)
        ]
        stream = bytearray(b"".join(frames))
        for _ in range(rng.randrange(1, 4)):
            where = rng.randrange(len(stream))
            match rng.randrange(3):
                case 0:
                    stream[where] ^= 1 << rng.randrange(8)
                case 1:
                    del stream[where : where + rng.randrange(1, 9)]
                case _:
                    stream[where:where] = rng.randbytes(rng.randrange(1, 9))
            if not stream:
                break
        decoder, at = Decoder(), 0
        while at < len(stream):
            step = rng.randrange(1, 50)
            for event in decoder.feed(bytes(stream[at : at + step])):
                if isinstance(event, Frame):
                    assert frame.encode(*event[:3]) in frames  # never a frame nobody sent
            at += step


def test_fuzz_random_payloads_with_a_right_checksum_never_raise() -> None:
    seed = int.from_bytes(os.urandom(4), "big")
    print("seed", seed)
    rng = random.Random(seed)
    for _ in range(5000):
        payload = bytearray(msgpack.packb([1, 40, {"a": [1, {"b": b"x"}], "c": None}]))
        for _ in range(rng.randrange(4)):
            payload[rng.randrange(len(payload))] = rng.randrange(256)
        events = Decoder().feed(framed(bytes(payload[: rng.randrange(1, len(payload) + 1)])))
        assert len(events) == 1


def orbit(bits: int, count: int) -> list[int]:
    """The places of a table of 2^bits that CPython tries one after the other for the key 0."""
    found = [0]
    while len(found) < count:
        found.append((found[-1] * 5 + 1) & ((1 << bits) - 1))
    return found


def crowded(bits: int, taken: int, count: int, highest: int) -> list[int]:
    """Keys up to `highest` for a table of 2^bits places: `taken` of them fill consecutive places of
    the orbit. The first tries of the others all fall on these places, so that each walks on from
    there to the end of the run."""
    rng, mask = random.Random(bits), (1 << bits) - 1
    keys = dict.fromkeys(orbit(bits, taken))
    places = frozenset(keys)
    for _ in range(300_000):
        key = tries = rng.randint(mask + 1, highest)
        place = key & mask
        while place in places and tries:
            tries >>= 5
            place = (place * 5 + tries + 1) & mask
        if place in places:
            keys[key] = None
        if len(keys) >= count:
            break
    return list(keys)


def seconds_of_map(keys: list[int]) -> float:
    """Processor time in which a frame with such a map is decoded or refused, in one step."""
    data = framed(b"\x93\x01\x28\x81\xa1a\xdf" + struct.pack(">I", len(keys)) + b"".join(
        msgpack.packb(key) + b"\x01" for key in keys
    ))  # fmt: skip
    decoder, longest = Decoder(), 0.0
    decoder.put(data)
    while True:
        began = time.thread_time()
        event = decoder.next()
        longest = max(longest, time.thread_time() - began)
        if event is not None or not decoder.in_steps:
            return longest


@pytest.mark.slow
def test_X1_no_map_of_numbers_that_share_places_takes_long() -> None:
    """120,000 keys below 2^32 took two seconds, in one call that nothing interrupts."""
    rest_of_2_18 = crowded(18, 110_000, 131_072, (1 << 32) - 1)
    assert len(rest_of_2_18) > 110_500
    began = time.thread_time()
    dict.fromkeys(rest_of_2_18)
    unbounded_s = time.thread_time() - began
    assert seconds_of_map(rest_of_2_18) < 0.05 < unbounded_s
    for bits, taken in ((11, 1_000), (12, 2_000), (13, 4_000), (14, 9_000)):
        assert seconds_of_map(crowded(bits, taken, (2 << bits) // 3, 20_000)) < 0.05, bits
    repeated = crowded(14, 9_000, 10_900, 20_000)
    assert seconds_of_map(repeated + repeated[-1:] * 100_000) < 0.05
