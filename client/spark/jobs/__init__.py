"""client/spark/jobs/: whole jobs of Spark over logs: export, aggregate, replay, fold.

    cli         the command line that all share; starts and ends Spark
    place       small files beside the data, on whatever file system Spark knows
    manifest    what an export has: one manifest each, which names a vector and a directory
    export, aggregate, replay, fold    one job each; each can be given to spark-submit too

Contract: what can be known to be wrong without Spark is said before Spark starts, in one line; a
job that was killed is run again with the same command, and loses and doubles nothing.
"""
