"""What a node writes down for the cluster: who did what, and what tenants have used.

    audit, audit_trail       records of who asked for what (X7)
    usage_trail              what each tenant has used
    system_log, own_appends  records wait for a log of the cluster's own, and are appended there
    reserved                 logs that clients read and never write
    auditing                 the parts put together

The contract: a record is in the node's own log before it is anywhere else.
"""
