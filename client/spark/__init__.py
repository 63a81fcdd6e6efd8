"""client/spark/: lognode as a data source and sink of PySpark. Only this folder imports pyspark.

    options       strings of a user -> checked values; no pyspark
    planning      a vector -> pieces of even size; offsets of a stream; no pyspark
    session       one blocking connection: what drivers and tasks ask of a cluster; no pyspark
    arrow         pages -> record batches in one order; record batches -> records; no pyspark
    schema        which columns there are
    reader, stream, sink    what runs in tasks and on the driver
    java          whether there is one; no pyspark
    source        what Spark finds by the name `lognode`
    jobs/         whole jobs: export, aggregate, replay, fold

Contract towards Spark:

1. What tasks read is fixed on the driver: spans of keys and of seqs. A task that runs again gives
   the same rows in the same order, whatever became of the ranges meanwhile.
2. Readers and writers are values that can be pickled: each task opens a connection of its own and
   closes it.
3. What is wrong with the options, the log, a vector or a lease is said on the driver in one line,
   where it can be known there, before a task starts.
4. A sink adds nothing twice when a task or a micro-batch runs again with the same rows.
"""
