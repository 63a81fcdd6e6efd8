"""client/spark/: lognode as a data source and sink of PySpark. Only this folder imports pyspark.

    options       option strings -> checked values; no pyspark
    planning      a vector -> pieces of even size; offsets of a stream; no pyspark
    loss          entries that retention removed before they were read
    logs          the logs of a query; no pyspark
    wanted        the keys of a query: patterns need the hierarchy of the log; no pyspark
    cursors       kept cursors: where a query begins, the progress of a stream; no pyspark
    connection    a connection on a thread of its own, for blocking code; no pyspark
    session       the connection of drivers and of tasks that read; no pyspark
    delivery      the appends of a task that writes, a producer per log; no pyspark
    leases        a planner's leases of snapshots, which the renewer of its driver keeps; no pyspark
    renewer       the process that renews the leases of a driver; no pyspark
    renewals      the leases that are renewed: which are due, and which end; no pyspark
    driver        the process whose life the leases follow; no pyspark
    arrow         pages -> record batches in one order; record batches -> records; no pyspark
    schema        the columns
    pace          when a stream begins a micro-batch, and how many entries it has
    backlog       what a stream has not read yet, for the progress of its query; no pyspark
    several       the stream of several logs
    reader, stream, sink    the code that runs in tasks and on the driver
    cause         the cause of a failure, from Spark's report; no pyspark
    java          the check for a usable Java; no pyspark
    source        the data source that Spark finds by the name `lognode`
    jobs/         whole jobs: export, aggregate, replay, fold

Contract with Spark:

1. The driver fixes what tasks read: spans of keys and of seqs. A task that runs again gives the
same rows in the same order, whatever happened to the ranges meanwhile.
2. Readers and writers are picklable values: each task opens its own connection and closes it.
3. An error in the options, the log, a vector or a lease is reported on the driver in one line,
before a task starts, if it can be known there.
4. The lease of a snapshot ends with the driver: planners, which are short-lived, hand the lease to
the renewer. Tasks renew no lease.
5. A sink adds nothing twice when a task or a micro-batch runs again with the same rows.
"""
