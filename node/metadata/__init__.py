"""The cluster's metadata as a node knows it.

    view                     the newest image of the metadata, and the leader of each range
    leaders                  the table of leaders, with numbered changes
    image_pages              pages of an image, made on one node and assembled on another

The contract: a node never takes an image that is older than one it acted on.
"""
