"""The ports of a node.

    doors                    ports for clients, for other nodes and for HTTP, with their bounds
    peer_server              the port that clients cannot use
    turned_away              metrics and log lines for connections that were closed

The contract: a connection is counted before it is read, and one beyond the bound costs little.
"""
