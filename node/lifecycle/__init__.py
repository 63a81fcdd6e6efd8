"""Begins and ends replicas: carries out, once, what the metadata asks of this node.

    duty_runner              carries out the duties that `partitions.duties` finds
    held_replicas            the replicas as `partitions.duties` sees them
    young                    limits how many begin at a time
    base_server, base_transfer, base_pieces
                             give a base and its files to a peer, and fetch them from a peer
    handover, draining       hand over leadership before replicas leave
    recoveries               report what an operator must know before unsafe recovery

The contract: each step is durable before the next one, and a start continues from any of them.
"""
