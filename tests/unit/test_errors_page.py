"""docs/errors.md: each code of an error has its row, with what the code of lognode says of it."""

import re
from pathlib import Path

import pytest

from lognode.client.cli.main import exit_code
from lognode.client.protocol.errors import BY_CODE, PartialFailure
from lognode.node.door import problems

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "errors.md").read_text("utf-8")
ROWS = {
    found[1]: [cell.strip() for cell in found[2].strip("|").split("|")]
    for found in re.finditer(r"^\| `([A-Z_]+)` \|(.*)$", PAGE, re.MULTILINE)
}
HTTP_ALONE = set(problems._OF_HTTP.values()) - set(BY_CODE)


def test_each_code_has_one_row() -> None:
    assert len(re.findall(r"^\| `[A-Z_]+` \|", PAGE, re.MULTILINE)) == len(ROWS)
    assert set(ROWS) == set(BY_CODE) | HTTP_ALONE
    assert all(row[-1] and row[-2] for row in ROWS.values())


@pytest.mark.parametrize("code", BY_CODE)
def test_the_row_says_what_the_error_is(code: str) -> None:
    error = BY_CODE[code]("text")
    status, again, ends_with, *_ = ROWS[code]
    assert again == ("yes" if error.retryable else "no")
    if not isinstance(error, PartialFailure):
        assert status.split(";")[0] == str(problems.status_of(error))
        assert ends_with == str(exit_code(error, writes=False))
    if code == "OVERLOADED":
        assert status.endswith(
            f"{problems.status_of(BY_CODE[code]('text', quota='x'))} for a quota"
        )


@pytest.mark.parametrize("code", sorted(HTTP_ALONE))
def test_the_row_of_a_code_of_http_has_its_status(code: str) -> None:
    assert problems._OF_HTTP[int(ROWS[code][0])] == code
