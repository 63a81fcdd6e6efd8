"""The cause of a failure, in one line, from Spark's report of it. No pyspark.

Spark adds to an error of a data source: its own classes of errors, a traceback of the Python worker
and frames of Java. The line with the cause is in the middle.
"""

import re


def cause(report: object) -> str:
    """Return the line with the cause of an error of Spark, or of the text of such an error."""
    text = str(report)
    found = re.findall(r"lognode\.client\.protocol\.errors\.\w+: (.+)", text)
    found = (
        found or re.findall(r"^\s*((?!org\.|java\.)[\w.]+(?:Error|Exception): .+)", text, re.M)[:1]
    )
    lines = [line for line in text.splitlines() if line.strip()]
    return found[-1].strip() if found else lines[0].strip() if lines else "Spark failed"
