"""Work of the node that comes in steps, done at once."""

from lognode.node.serving import health


def drained(steps: health.Steps) -> health.Found:
    """Return what the work returns."""
    while True:
        try:
            next(steps)
        except StopIteration as done:
            found: health.Found = done.value
            return found
