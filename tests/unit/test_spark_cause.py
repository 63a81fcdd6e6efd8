"""One line from what Spark reports: the error of lognode, or of a user's function."""

import io

from pyspark.util import handle_worker_exception

from lognode.client.protocol.errors import LogNotFound
from lognode.client.spark.cause import cause

JAVA = """
\tat org.apache.spark.sql.errors.QueryCompilationErrors$.pythonDataSourceError(Errors.scala:2)
Caused by: java.lang.RuntimeException: the worker ended
"""


def told_by_a_worker(error: Exception, *, hidden: bool = False) -> str:
    """What Spark's worker tells Java of an error."""
    sent = io.BytesIO()
    try:
        raise error
    except Exception as raised:
        handle_worker_exception(raised, sent, hidden)
    return sent.getvalue()[8:].decode()


def test_the_error_of_lognode_is_found_in_the_report() -> None:
    error = LogNotFound("log 'nope' does not exist; `lognode log list` shows the logs")
    for hidden in (False, True):
        told = told_by_a_worker(error, hidden=hidden)
        assert (len(told.splitlines()) == 1) is hidden
        for report in (
            f"[PYTHON_DATA_SOURCE_ERROR] Failed to plan Python data source: {told}{JAVA}",
            f"Job aborted due to stage failure: Task 0 failed 4 times\n{told}{JAVA}\n{told}{JAVA}",
        ):
            assert cause(report) == cause(Exception(report)) == error.message


def test_other_errors_are_one_line_too() -> None:
    told = told_by_a_worker(ValueError("no total today"))
    assert cause(f"Job aborted\n{told}{JAVA}") == "ValueError: no total today"
    assert cause("[DATA_SOURCE_NOT_FOUND] Failed to find it.\n\tat org.x") == (
        "[DATA_SOURCE_NOT_FOUND] Failed to find it."
    )
    assert cause("") == "Spark failed"
