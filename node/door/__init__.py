"""Serve REST and server-sent events, as a client of the cluster that shows the asker's token.

    door                     the way of a request: rights, bounds, parameters, body, handler
    route, openapi           the table of operations; the OpenAPI document made from it
    log_routes, entry_routes, event_routes, snapshot_routes, group_routes   the operations
    status_routes, status_groups, report_routes   the operations of the console
    looks                    one status for all who ask within a second
    append_once              appends that may be repeated
    clients                  a client of the cluster for each token
    request_ids              the id of a request, in its answer and in the log
    admission                how many requests and streams may be under way
    parameters, json_kinds   values in addresses, and in JSON: their checks and their schemas
    bodies                   bodies of requests
    answers, problems        answers piece by piece; errors
    events, event_ids        a follow as server-sent events; the id from which another continues

The contract: the door may do nothing that the asker may not do at the port for clients; it holds
the event loop for no longer than a few milliseconds, and what it keeps in memory has bounds.
"""
