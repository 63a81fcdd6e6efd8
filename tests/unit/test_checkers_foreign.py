"""`lognode-chaos check`: histories of other systems, small ones here and the shared ones."""

import csv
import os
import time
from pathlib import Path

import pytest
from hand_history import Story

from lognode.chaos.main import main

SHARED = Path(
    os.environ.get("LOGNODE_HISTORIES")
    or Path(__file__).resolve().parents[2].parent / "shared" / "data" / "histories"
)

ETCD = """\
INFO  jepsen.util - 0\t:invoke\t:write\t1
INFO  jepsen.util - 0\t:ok\t:write\t1
INFO  jepsen.util - :nemesis\t:info\t:start\tnil
INFO  jepsen.util - 1\t:invoke\t:cas\t[1 2]
INFO  jepsen.util - 2\t:invoke\t:cas\t[3 4]
INFO  jepsen.util - 1\t:info\t:cas\t:timed-out
INFO  jepsen.util - 2\t:fail\t:cas\t[3 4]
INFO  jepsen.util - 3\t:invoke\t:read\tnil
INFO  jepsen.util - 3\t:fail\t:read\t:timed-out
INFO  jepsen.util - 4\t:invoke\t:read\tnil
INFO  jepsen.util - 4\t:ok\t:read\t{}
"""
STORE = """\
{{:process 0, :type :invoke, :f :put, :key "a", :value "x"}}
{{:process 1, :type :invoke, :f :append, :key "a", :value "y \\"1\\""}}
{{:process 0, :type :ok, :f :put, :key "a", :value "x"}}
{{:process 1, :type :ok, :f :append, :key "a", :value "y \\"1\\""}}
{{:process 0, :type :invoke, :f :get, :key "b", :value nil}}
{{:process 0, :type :ok, :f :get, :key "b", :value ""}}
{{:process 0, :type :invoke, :f :get, :key "a", :value nil}}
{{:process 0, :type :ok, :f :get, :key "a", :value "{}"}}
"""


def _check(tmp_path: Path, text: str, *flags: str) -> int:
    path = tmp_path / "history"
    path.write_text(text)
    return main(["check", str(path), *flags])


@pytest.mark.parametrize("value", ["1", "2"])
def test_a_good_register_is_valid(
    tmp_path: Path, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its cas timed out: it happened or it did not."""
    assert _check(tmp_path, ETCD.format(value)) == 0
    assert capsys.readouterr().out.endswith("history: valid: linearizable (1 key, 3 operations)\n")


@pytest.mark.parametrize("value", ["3", "4", "nil"])
def test_a_bad_register_is_invalid(
    tmp_path: Path, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """4 could only come of the cas that failed."""
    assert _check(tmp_path, ETCD.format(value)) == 1
    said = capsys.readouterr().out
    assert f"invalid: key register: read {value} of process 4 (line 10 to 11) has no place" in said
    assert "the state may be: 1, 2 " in said


@pytest.mark.parametrize("value", ["x", 'xy \\"1\\"'])
def test_a_store_is_judged_by_key(tmp_path: Path, value: str) -> None:
    """The put and the append were concurrent."""
    assert _check(tmp_path, STORE.format(value)) == 0


@pytest.mark.parametrize("value", ["", 'y \\"1\\"', 'y \\"1\\"x', "xx"])
def test_a_bad_store_is_invalid(
    tmp_path: Path, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _check(tmp_path, STORE.format(value)) == 1
    assert "invalid: key a: get " in capsys.readouterr().out


def test_a_store_read_before_its_write_ended_may_see_it_or_not(tmp_path: Path) -> None:
    asked = '{:process 0, :type :invoke, :f :put, :key "a", :value "x"}\n'
    told = '{:process 1, :type :invoke, :f :get, :key "a", :value nil}\n'
    for value in ("", "x"):
        answer = f'{{:process 1, :type :ok, :f :get, :key "a", :value "{value}"}}\n'
        assert _check(tmp_path, asked + told + answer) == 0
        failed = asked.replace(":invoke", ":fail")
        assert _check(tmp_path, asked + failed + told + answer) == (1 if value else 0)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "line 1 is '', which does not begin a history"),
        ("process 0 reads\n", "line 1 is 'process 0 reads', which does not begin a history"),
        (ETCD.format("1") + "INFO etcd\n", "line 12: 'INFO etcd' is not an event of this format"),
        (ETCD.format("x"), "line 11: 'x' is not a value of :ok :read"),
        (ETCD.format("1").replace("[1 2]", "1"), "line 4: '1' is not a value of :invoke :cas"),
        (
            STORE.format("x").replace(":put", ":del"),
            "line 1: '\"x\"' is not a value of :invoke :del",
        ),
        (
            STORE.format("x").replace(":invoke", ":ok"),
            "line 1: process 0 did not ask for this operation",
        ),
        (
            STORE.format("x").replace(":ok", ":invoke"),
            "line 3: process 0 has not ended its operation before",
        ),
        ("INFO  jepsen.util - :nemesis\t:info\t:start\tnil\n", "the history has no operation"),
    ],
)
def test_a_malformed_history_is_refused_with_its_line(
    tmp_path: Path, text: str, why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _check(tmp_path, text) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.count("\n") == 1
    assert f"{tmp_path / 'history'}: {why}" in told.err


def test_a_file_that_is_not_there_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", str(tmp_path / "none")]) == 2
    assert "No such file" in capsys.readouterr().err


def test_a_model_that_is_named_is_not_guessed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _check(tmp_path, ETCD.format("1"), "--model", "kv") == 2
    assert "line 1: " in capsys.readouterr().err
    assert _check(tmp_path, ETCD.format("1"), "--model", "register") == 0


@pytest.mark.parametrize("stale", [False, True])
def test_a_history_of_ours_is_judged_as_a_register(
    tmp_path: Path, stale: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    story = Story()
    story.append("p1-1", 1, expect=0)
    story.append("p1-2", 4, expect=1)
    story.read(2, [(1, "p1-1")] if stale else [(1, "p1-1"), (4, "p1-2")])
    text = "".join(event.to_line() + "\n" for event in story.events)
    assert _check(tmp_path, text) == (1 if stale else 0)
    told = capsys.readouterr().out
    assert ("invalid: key k: read of seq 1 with p1-1 of process 2" in told) is stale
    assert _check(tmp_path, text.replace('"records"', '"cords"')) == 2
    assert "not events of a register test: KeyError('records')" in capsys.readouterr().err
    assert _check(tmp_path, text + "{}\n") == 2
    assert "line 7 is not an event" in capsys.readouterr().err


def test_the_worst_of_several_files_decides(tmp_path: Path) -> None:
    paths = []
    for number, text in enumerate((STORE.format("x"), ETCD.format("4"))):
        paths.append(tmp_path / str(number))
        paths[-1].write_text(text)
    assert main(["check", *map(str, paths)]) == 1


def test_a_time_limit_that_is_over_is_unknown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = '{{:process {0}, :type :{1}, :f :{2}, :key "a", :value "{3}"}}\n'
    asked = [line.format(n, "invoke", "append", n) for n in range(30)]
    told = [line.format(n, "ok", "append", n) for n in range(30)]
    read = [line.format(1, kind, "get", "no") for kind in ("invoke", "ok")]
    assert _check(tmp_path, "".join([*asked, *told, *read]), "--time-limit", "0.05") == 2
    assert "unknown: the time limit ended before the answer for keys a" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.skipif(
    not (SHARED / "expected.csv").exists(),
    reason=f"no shared histories in {SHARED}; LOGNODE_HISTORIES names their folder",
)
def test_all_shared_histories_are_judged_as_known(capsys: pytest.CaptureFixture[str]) -> None:
    """Fifty-two of etcd and four of key-value stores, in under a minute of one core."""
    with open(SHARED / "expected.csv", encoding="utf-8", newline="") as rows:
        expected = {row["history"]: row["linearizable"] == "true" for row in csv.DictReader(rows)}
    expected |= {path.name: path.stem.endswith("-ok") for path in SHARED.glob("c*-*.txt")}
    assert len(expected) > 50
    began = time.process_time()
    main(["check", *(str(SHARED / name) for name in expected)])
    took_s = time.process_time() - began
    told = [line.split(": ")[:2] for line in capsys.readouterr().out.splitlines()]
    assert {Path(path).name: verdict for path, verdict in told} == {
        name: "valid" if good else "invalid" for name, good in expected.items()
    }
    assert took_s < 60, f"{took_s:.1f} s of CPU for {len(expected)} histories"
