"""HTTP for people and their tools.

    http                     health, readiness, metrics, status
    http_guests, http_log    few connections, none for longer than its requests need
    http_status              pages that are made for a part of the time only

The contract: whoever may not know a name learns nothing of it, and a page costs others nothing.
"""
