"""How a node comes to a cluster.

    newcomer                 an empty directory becomes a node
    bootstrap                several empty nodes agree on the one that founds
    joining, attempt         a node asks to be taken in, as the same one after a crash
    admission                what an empty node shows and checks before
    membership               registered again at each start, or fenced
    strangers                nodes and clients of another cluster

The contract: an identity is durable before it is said, and no cluster is founded twice.
"""
