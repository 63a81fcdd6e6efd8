"""What principals and tenants use, and what their quotas leave them.

    quotas                   buckets and spenders: no I/O, no clock
    gate                     each request of a client passes, or is refused
    foretold                 processor time that is held in advance
    usage                    the answer to `usage`

The contract: a refusal comes before anything of the request is done, and says when to come again.
"""
