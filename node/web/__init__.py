"""Serve HTTP for people and their tools.

    http                     health, readiness, metrics, status, the door, the console
    console_files            the files of the console, which are in `console/`
    http_guests, http_log    bounds on connections and on their log lines
    request_log              a line for each request, or for some that fail
    http_status              pages that take a bounded part of the time

The contract: an asker learns nothing of a name that it may not know, and a page delays no one else.
"""
