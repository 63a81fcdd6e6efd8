"""Connections between nodes.

    peers                    one dialled connection to each, which carries all groups
    raft_in                  messages of groups: whose they are, and of which boot
    pings, confirmations     who is alive, and who confirms that a leader leads
    known_peers              who may speak as which node

The contract: a message that is not of a member's group never reaches the group.
"""
