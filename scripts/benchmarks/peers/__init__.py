"""Systems that lognode is measured beside, each in a module: how to get it, its configuration and
what that says of durability, how to start and end it, and a client that appends.

    system       what the modules have in common
    run          `scripts/bench peers`: turns, medians, ratios
    fetch        `scripts/bench fetch`: gets the programs
    load         the load on one of them, in a process of its own
"""
