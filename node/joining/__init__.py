"""Bring a node into a cluster.

    identifying              which node a directory is
    newcomer                 an empty directory becomes a node
    bootstrap                several empty nodes agree on the founder
    joining, attempt         a node asks to join, and after a crash joins as the same node
    admission                what an empty node shows and checks before it joins
    membership               a node registers at each start, or is fenced
    waits                    lines of the log that say what the node waits for
    readiness                whether the node is ready to serve
    strangers                nodes and clients of another cluster

The contract: an identity is durable before the node uses it, and no cluster is founded twice.
"""
