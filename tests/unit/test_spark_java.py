"""No Java, or one too old, is said in one line that says what to do."""

from pathlib import Path

import pytest

from lognode.client.protocol.errors import Unsupported
from lognode.client.spark.java import check_java


def java(place: Path, said: str) -> str:
    """A directory with a `java` that says that of its version."""
    place.mkdir(parents=True)
    (place / "java").write_text(f"#!/bin/sh\necho '{said}' >&2\n")
    (place / "java").chmod(0o755)
    return str(place)


def test_a_java_that_spark_can_run_on_is_taken(tmp_path: Path) -> None:
    new = java(tmp_path / "new" / "bin", 'openjdk version "17.0.15" 2025-04-15')
    old = java(tmp_path / "old" / "bin", 'openjdk version "11.0.2" 2019-01-15')
    check_java({"PATH": new})
    check_java({"PATH": old, "JAVA_HOME": str(tmp_path / "new")})
    check_java({"PATH": java(tmp_path / "newest", 'openjdk version "25-ea" 2025-09-16')})


def test_no_java_and_one_too_old_are_named(tmp_path: Path) -> None:
    with pytest.raises(
        Unsupported, match=r"^PATH contains no java; Spark needs Java 17 or newer: inst"
    ):
        check_java({"PATH": str(tmp_path)})
    with pytest.raises(Unsupported, match=r"^PATH contains no java"):
        check_java({})
    new = java(tmp_path / "new" / "bin", 'openjdk version "17.0.15" 2025-04-15')
    gone = str(tmp_path / "gone")
    with pytest.raises(Unsupported, match=f"JAVA_HOME is {gone}, but {gone}/bin/java"):
        check_java({"PATH": new, "JAVA_HOME": gone})
    for said, version in (('java version "1.8.0_292"', "Java 8"),
                          ('openjdk version "16.0.2" 2021-07-20', "Java 16"),
                          ("what?", "a Java that does not tell its version")):  # fmt: skip
        place = java(tmp_path / version.replace(" ", "-"), said)
        with pytest.raises(Unsupported, match=f"{place}/java is {version}; Spark needs Java 17"):
            check_java({"PATH": place})
