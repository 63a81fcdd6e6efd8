"""The options of the Spark source and sink: each is checked, and refused with what is allowed."""

from dataclasses import replace

import pytest

from lognode.client.protocol.errors import InvalidArgument
from lognode.client.spark.options import COLUMNS, ReadOptions, read_options, write_options
from lognode.client.vector import Part, Vector

BASE = {"servers": "h1:4600,h2:4600", "log": "flights"}
PLAIN = ReadOptions("h1:4600,h2:4600", "flights")
VECTOR = Vector("c1", "flights", 1, "lease", 9, (Part(b"", None, 70),))


def batch(**given: str) -> ReadOptions:
    return read_options({**BASE, **given}, streaming=False)


def stream(**given: str) -> ReadOptions:
    return read_options({**BASE, **given}, streaming=True)


def test_the_defaults_read_everything() -> None:
    assert batch() == PLAIN
    assert batch().columns == COLUMNS
    assert batch().spans == ((b"", None),)
    assert batch().fail_on_data_loss
    assert batch().lease_s == 3_600


def test_the_servers_may_be_reached_by_tls() -> None:
    servers = "lognodes://h1:4600,h2:4600?ca=/etc/ca.crt&cert=c&key=k"
    assert batch(servers=servers).servers == servers


def test_names_and_words_are_taken_in_any_case() -> None:
    assert batch(STARTINGseq="7", Mode="CHANGES", failondataloss="False") == replace(
        PLAIN, starting=7, fail_on_data_loss=False
    )


def test_several_logs_are_named_or_have_a_prefix() -> None:
    def some(**given: str) -> ReadOptions:
        return read_options({"servers": "h1:4600", **given}, streaming=False)

    assert some(logs='["b", "a", "b"]').logs == ("a", "b")
    many = some(logPrefix="eu/", minPartitions="7")
    assert many.log_prefix == "eu/"
    assert many.of_log("eu/1", 3) == some(log="eu/1", minPartitions="3")
    for given, said in (
        ({}, "option log: is not given; write .* or give logs or logPrefix"),
        ({"logs": "a"}, "option logs: .*give a JSON array of 1 to 1000 names"),
        ({"logs": "[]"}, "give a JSON array"),
        ({"logs": '["a", 1]'}, "give a JSON array"),
        ({"logs": '["a"]', "logPrefix": "a"}, "option logs: and logPrefix are both given"),
        ({"logs": '["a"]', "asOf": VECTOR.to_json()}, "option asOf: is a snapshot, which is of"),
        ({"logPrefix": "a", "startingSeq": VECTOR.to_json()}, "option startingSeq: is a snapshot"),
    ):
        with pytest.raises(InvalidArgument, match=said):
            some(**given)
    with pytest.raises(InvalidArgument, match="logs: is an option of a batch"):
        write_options({"servers": "h1:4600", "logs": '["a"]'})


def test_values_become_what_they_mean() -> None:
    assert batch(columns="seq, rangestart,KEY").columns == ("seq", "rangeStart", "key")
    assert batch(includeHeaders="true").columns == (*COLUMNS, "headers")
    assert batch(keyPrefix="a").spans == ((b"a", b"b"),)
    assert batch(keyPrefix='{"b64": "/w=="}').spans == ((b"\xff", None),)
    assert batch(keys="N14228").spans == ((b"N14228", b"N14228\0"),)
    assert batch(keys='["b", {"b64": "AA=="}, "b"]').spans == (
        (b"\0", b"\0\0"), (b"b", b"b\0"),
    )  # fmt: skip
    assert batch(pattern="eu/*/orders/>").patterns == ("eu/*/orders/>",)
    assert batch(pattern='["eu/>", "!eu/7/>", {"b64": "/w=="}]').patterns == (
        "eu/>", "!eu/7/>", b"\xff",
    )  # fmt: skip
    assert batch(cursor="nightly").cursor == "nightly"
    assert stream(cursor="c", startingSeq="latest").starting == "latest"
    assert stream(cursor="c", startingTimestamp="5") == replace(PLAIN, cursor="c", starting_ms=5)
    assert batch(startingSeq="earliest").starting is None
    assert batch(startingSeq=VECTOR.to_json()).starting == VECTOR
    assert batch(asOf=VECTOR.to_json()).as_of == VECTOR
    assert batch(asOf="1970-01-01T00:00:01.5+00:00").as_of == 1_500
    assert batch(startingTimestamp="1500", endingTimestamp="1970-01-01T01:00:02+01:00") == (
        replace(PLAIN, starting_ms=1_500, ending_ms=2_000)
    )
    assert batch(snapshotLease="7d") == replace(PLAIN, lease_s=7 * 86_400.0, renews=False)
    assert stream(maxEntriesPerTrigger="5", maxBytesPerTrigger="9").bytes_max == 9
    assert stream(minEntriesPerTrigger="7").trigger_delay_s == 900
    assert stream(minEntriesPerTrigger="7", maxTriggerDelay="2m").trigger_delay_s == 120
    assert stream(consistency="prefix", pushdown="false").consistency == "prefix"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            {"startingSq": "1"},
            r"option startingSq: is not an option of lognode; the options are servers, log",
        ),
        ({"logs": '["a"]'}, "option log: and logs are both given; give one of them"),
        (
            {"option.log": "flights", "provider": "lognode"},
            "lognode has no CREATE TABLE: .* Use CREATE TEMPORARY VIEW",
        ),
        ({"path": "x"}, "without a path"),
        (
            {"credentialsfile": "x"},
            "option credentialsFile: does not exist: give the file of a token",
        ),
        ({"cursor": "x" * 300}, "option cursor: the name of the cursor is"),
        ({"cursor": "x", "startingSeq": "5"}, "startingSeq are both given"),
        ({"cursor": "x", "startingTimestamp": "5"}, "startingTimestamp are both given"),
        ({"cursor": "x", "mode": "snapshot"}, "it starts with the earliest entry"),
        ({"pattern": "a/*", "keyPrefix": "a"}, "pattern are both given"),
        ({"pattern": "a/*", "keys": "a"}, "pattern are both given"),
        ({"pattern": '["a'}, "give a pattern, or a JSON array"),
        ({"pushdown": "true"}, r"all others of the same DataFrame.*Give keys, keyPrefix"),
        ({"pushdown": "yes"}, "option pushdown: is 'yes'; give true or false"),
        ({"servers": "lognodes://h1?secret=x"}, "option servers: .*'secret=x' is not ca=FILE"),
        ({"servers": "h1:99999"}, "option servers: .*99999.* is not a port"),
        ({"log": " "}, "option log: .*the value is empty"),
        ({"mode": "all"}, "option mode: is 'all'; give changes or snapshot"),
        ({"failOnDataLoss": "no"}, "give true or false"),
        ({"columns": "key,valu"}, "give some of key, value, log, seq, timestamp, headers"),
        ({"columns": "key,key"}, "each once"),
        ({"columns": "key", "includeHeaders": "true"}, "columns does not name headers"),
        ({"keys": "[1]"}, "a key is text, or"),
        ({"keys": "[]"}, "give 1 to 10000 keys"),
        ({"keys": "[broken"}, "or a JSON array"),
        ({"keys": "a" * 481}, "at most 480 bytes"),
        ({"keys": "a", "keyPrefix": "a"}, "keys: and keyPrefix are both given"),
        ({"startingSeq": "latest"}, "a stream remembers no start"),
        ({"startingSeq": "-1"}, "give earliest, a seq, or the JSON"),
        ({"startingSeq": "{}"}, "the text is not a snapshot in the form of to_json"),
        ({"startingSeq": "1", "startingTimestamp": "1"}, "startingTimestamp are both given"),
        ({"endingSeq": "0"}, "whole number of 1 or more"),
        ({"endingSeq": "1", "asOf": "1"}, "asOf are both given"),
        ({"startingTimestamp": "2026-01-31T12:00:00"}, "ISO 8601 with a zone"),
        ({"asOf": "yesterday"}, "Unix milliseconds"),
        ({"minPartitions": "0"}, "whole number of 1 or more"),
        ({"snapshotLease": "8d"}, "at most 7 days"),
        ({"snapshotLease": "soon"}, "give 90s, 30m, 1h or 7d"),
        ({"consistency": "strong"}, "give linearizable or prefix"),
        ({"minEntriesPerTrigger": "1"}, "is an option of a stream, but this is a batch"),
        ({"maxEntriesPerTrigger": "1"}, "is an option of a stream, but this is a batch"),
        ({"mode": "snapshot", "startingSeq": "5"}, "it starts with the earliest entry"),
    ],
)
def test_a_bad_option_is_refused_with_the_allowed_values(given: dict[str, str], said: str) -> None:
    with pytest.raises(InvalidArgument, match=said) as raised:
        batch(**given)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"endingSeq": "5"}, "endingSeq: is an option of a batch, but this is a stream"),
        ({"asOf": "5"}, "asOf: is an option of a batch"),
        ({"mode": "snapshot"}, "a stream has mode=changes"),
        ({"startingSeq": "Latest"}, "lost without an error.*give the option cursor too"),
        ({"startingSeq": VECTOR.to_json(), "cursor": "c"}, "a new cursor begins at earliest"),
    ],
)
def test_a_stream_refuses_what_only_a_batch_has(given: dict[str, str], said: str) -> None:
    with pytest.raises(InvalidArgument, match=said):
        stream(**given)


def test_a_missing_option_is_named() -> None:
    for name in BASE:
        left = {key: value for key, value in BASE.items() if key != name}
        with pytest.raises(InvalidArgument, match=f"option {name}: is not given"):
            read_options(left, streaming=None)
    with pytest.raises(InvalidArgument, match="option servers: is not given"):
        write_options({"log": "flights"})
    assert write_options({"servers": BASE["servers"]}).log is None


def test_a_sink_takes_what_spark_adds_and_nothing_of_a_reader() -> None:
    assert write_options({**BASE, "checkpointlocation": "/x", "queryname": "q"}).log == "flights"
    with pytest.raises(
        InvalidArgument, match="mode: is an option of a batch or a stream, but this is a sink"
    ):
        write_options({**BASE, "mode": "changes"})
    with pytest.raises(InvalidArgument, match="the options are servers, log, writeId, timeout"):
        write_options({**BASE, "producer": "x"})


def test_the_id_of_a_write_is_checked() -> None:
    assert write_options({**BASE, "writeid": "load-2026.11:29_a"}).write_id == "load-2026.11:29_a"
    for bad in ("", "a/b", "x" * 129, "ä", "a b"):
        with pytest.raises(InvalidArgument, match=r"option writeId: .* give 1 to 128 of the char"):
            write_options({**BASE, "writeId": bad})
    with pytest.raises(
        InvalidArgument, match=r"writeId: is an option of save\(\), but this is a st"
    ):
        write_options({**BASE, "writeId": "x"}, streaming=True)
    with pytest.raises(InvalidArgument, match="is an option of a sink, but this is a batch"):
        batch(writeId="x")
