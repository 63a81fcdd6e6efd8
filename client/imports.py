"""No collection of garbage while lognode is imported.

An import makes 80,000 objects, of which none is garbage, and the collector looks at them again and
again: a tenth of the time of the import. `lognode/__init__.py` imports this module first.
"""

import gc

_was_enabled = gc.isenabled()
gc.disable()


def end() -> None:
    """Let the collector go on, if it was on before the import, with these objects as old ones.

    Else the next object that anybody makes would start a look at all 80,000. Freezing and
    unfreezing moves all to the oldest generation; a program that froze objects keeps them frozen.
    """
    if _was_enabled:
        if not gc.get_freeze_count():
            gc.freeze()
            gc.unfreeze()
        gc.enable()
