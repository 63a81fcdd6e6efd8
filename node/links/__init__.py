"""Connect nodes with each other.

    peers                    one dialled connection to each peer, which carries all groups
    raft_in                  messages of groups, checked for their sender, group and boot
    pings, confirmations     which peers are alive; which members confirm a leader
    known_peers              who may speak as which node

The contract: a group gets messages only from its members.
"""
