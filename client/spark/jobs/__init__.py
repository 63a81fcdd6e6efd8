"""client/spark/jobs/: whole jobs of Spark over logs: export, aggregate, replay, fold.

    main, cli   the verb; the command line that all jobs share, which starts and ends Spark
    iceberg     the files of an export as an Iceberg table
    place       small files beside the data, on any file system that Spark knows
    manifest    the exports of a place: a manifest each, which names a vector and a directory
    histories   what an incremental fold reads
    export, aggregate, replay, fold    one job each; each can be given to spark-submit too

Contract: errors that can be known without Spark are reported before Spark starts, in one line.
A job that was killed is run again with the same command, and neither loses nor doubles
anything.
"""
