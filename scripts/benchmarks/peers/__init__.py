"""The systems that lognode is compared with, each in a module.

A module says how to get its system, its configuration and what that means for durability, how to
start and end the system, and has a client that appends.

    system       the common interface of the modules
    run          `scripts/bench peers`: turns, medians, ratios
    fetch        `scripts/bench fetch`: gets the programs
    load         the load on one system, in a process of its own
"""
