"""How replicas begin and end: what the metadata asks of this node is done, once.

    duties                   does what `partitions.duties` says
    young, first_base        how many begin at a time, and what a generation begins with
    base_server, base_transfer, base_pieces
                             a base and its files, given to a peer and fetched from one
    handover, draining       leads are handed over before their replicas leave
    recoveries               what an operator is told before unsafe recovery

The contract: each step is durable before the next one, and a start goes on from any of them.
"""
