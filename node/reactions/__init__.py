"""What the node does at an event that concerns several rooms.

    newer_image              the metadata have changed
    controller_member        a replica of the controller began or has applied entries
    signals                  signals of the operating system

The contract: a reaction calls one method of each part, and keeps no state of its own.
"""
