"""Load and size of the ranges led here, as input for planning.

    busy_ranges              the key at which the load of a range halves
    large_ranges             the key at which its bytes halve
    small_ranges             ranges that could be merged with a neighbour
    stored                   the stored bytes of each tenant
    load_reports             size and load of replicas, asked of all nodes

The contract: the numbers are soft. A wrong number costs a plan, never an entry.
"""
