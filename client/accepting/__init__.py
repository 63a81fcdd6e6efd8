"""Accepting connections: bounds before belief, for a node and for whoever else serves the protocol.

    listener, listening      a port, and how fast it accepts
    acceptor                 one connection: its handshake, its requests, its answers
    request, access          what a handler gets; who asks
    handshake_turns          the loop's time for handshakes, shared between hosts
    meter, budget, readers, incomplete
                             the bytes that connections hold, and who holds too many
    seats                    how many connections there may be, and whose
    abandoned                requests that nobody waits for any more

The contract: everything from the network is bounded before it is believed, costs the sender before
it costs the process, and ends no more than its own connection.
"""
