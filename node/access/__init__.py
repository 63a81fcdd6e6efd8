"""Identify the users of a node, and decide what each of them may do and see.

    access                   tokens and certificates, checked against the metadata
    rights, visible, clipped what a token allows, and which part of an answer its holder sees
    key_rights               the keys of a log that a token allows: spans, and patterns beside them
    entrance, exposure       the parts put together; a node that others reach has TLS and tokens
    http_guard               the same for HTTP
    token_service, token_recovery, recover_verb, invite_service
                             tokens and invitations are created and revoked

The contract: a client sees only the logs, keys and range bounds that one of its scopes allows.
"""
