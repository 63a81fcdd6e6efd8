"""The ports of a node.

    doors                    for clients, for other nodes, for HTTP: their bounds
    peer_server              the port that clients cannot use
    turned_away              what is told of connections that had to go

The contract: a connection is counted before it is read, and one that is one too many costs little.
"""
