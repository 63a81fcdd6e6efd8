"""Connects this node with the controller, and does the work of the controller's leader.

    heartbeat                every node asks for news; asking shows that the node is alive
    images, reports          images of the metadata, and the progress of operations on ranges
    controller_driver        the leader commits the commands that `partitions.change` proposes
    controller_changes       the controller's own next generation
    lead_balance             all nodes lead about as many ranges

The contract: only a committed command changes the metadata.
"""
