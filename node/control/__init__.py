"""This node and the controller: what it hears, what it reports, and what it does as its leader.

    heartbeat                every node asks for news, and is heard by asking
    images, reports          images of the metadata, and how far operations on ranges are
    controller_driver        the leader commits what `partitions.change` says
    controller_changes       the controller's own next generation
    lead_balance             all nodes lead about as many ranges

The contract: only a committed command changes the metadata.
"""
