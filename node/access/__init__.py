"""Who uses a node, and what each of them may do and see.

    access                   tokens and certificates against the metadata
    rights, visible, clipped what a token allows, and what of an answer its holder sees
    entrance, exposure       the parts put together; a node that others reach has TLS and tokens
    http_guard               the same for HTTP
    token_service, token_recovery, recover_verb, invite_service
                             tokens and invitations are made and taken back

The contract: nobody sees a log, a key or a bound of a range that no scope of theirs allows.
"""
