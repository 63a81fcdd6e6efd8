"""Accepting connections: for a node, and for any other server of the protocol.

    listener, listening      a port, and how fast it accepts
    server_handshake         one connection: hello, welcome, proofs
    acceptor                 and after its handshake: requests and answers
    handler                  what a listener needs of the program that serves
    request, access          what a handler gets; the rights of the sender
    handshake_turns          the loop's time for handshakes, shared between hosts
    meter, budget, readers, incomplete
                             the bytes that connections hold, and the limits on them
    seats                    the number of connections, and their share per host
    abandoned                requests whose clients no longer wait

The contract: all data from the network is bounded before it is trusted, costs the sender before it
costs the process, and can end only its own connection.
"""
