"""How busy and how large the ranges are that are led here, for whoever plans.

    busy_ranges              where the load of a range halves
    large_ranges             where its bytes halve
    small_ranges             which could be merged with a neighbour
    stored                   what each tenant stores
    load_reports             what replicas hold and how much they are used, asked of all nodes

The contract: the numbers are soft. A wrong one costs a plan, never an entry.
"""
