"""TLS: the files of a node, the nodes that it accepts, and a small certificate authority.

    tls                      contexts, and the certificates that the nodes of the cluster have
    authority                the authorities of a CA file, told apart by their keys
    ca, ca_verbs             `lognode ca`

The contract: files are read again when they have changed, and a wrong file changes nothing.
"""
