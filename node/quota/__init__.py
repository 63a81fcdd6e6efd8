"""Count what principals and tenants use, and refuse what exceeds their quotas.

    quotas                   buckets and spenders: no I/O, no clock
    gate                     each request of a client passes, or is refused
    foretold                 processor time that is reserved in advance
    usage                    the answer to `usage`

The contract: a request is refused before any of it is done, and the refusal says when to retry.
"""
