"""What the checkers of a workload say together about a history."""

from hand_history import Story

from lognode.chaos.checkers import for_workload
from lognode.chaos.verdict import Result


def judged(workload: str, story: Story) -> Result:
    """Return the findings of all checkers of the workload as one result."""
    found = Result(workload)
    for checker in for_workload(workload):
        result = checker(story.history)
        found.anomalies += result.anomalies
        found.unknown += result.unknown
        found.counts |= result.counts
    return found
