"""TLS: the files of a node, whom it believes, and a small authority for who has none.

    tls                      contexts, and which certificate a node of the cluster has
    authority                the authorities of a CA file, told apart by their keys
    ca, ca_verbs             `lognode ca`

The contract: files are read again when they have changed, and a wrong file changes nothing.
"""
