"""Record what principals did and what tenants used, for the whole cluster.

    audit, audit_trail       records of requests and their principals (X7)
    usage_trail              records of what each tenant has used
    system_log, own_appends  queue the records, and append them to a log of the cluster
    reserved                 logs that clients read and never write
    auditing                 the parts put together

The contract: an audit record is in the node's own log before it is anywhere else.
"""
