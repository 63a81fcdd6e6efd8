"""What a node knows of the cluster.

    view                     the newest image of the metadata, and who leads what
    leaders                  who leads what, by numbered changes
    image_pages              pages of an image, made here and put together there

The contract: an image older than one that was acted on is never taken.
"""
