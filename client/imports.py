"""No collection of garbage while lognode is imported.

An import makes 80,000 objects, of which none is garbage, and the collector looks at them again and
again: a tenth of the time of the import. `lognode/__init__.py` imports this module first.
"""

import gc

_was_enabled = gc.isenabled()
gc.disable()


def end() -> None:
    """Let the collector go on, if it was on before the import."""
    if _was_enabled:
        gc.enable()
