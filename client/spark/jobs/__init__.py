"""client/spark/jobs/: whole jobs of Spark over logs: export, aggregate, replay, fold.

    main, cli   the verb; the command line that all jobs share, which starts and ends Spark
    iceberg     the files of an export as an Iceberg table
    iceberg_files   the commits to the table
    remote      sessions of Spark Connect
    place       small files beside the data
    hadoop      the files of a place on any file system that Spark knows
    shared      the files of a place that this process shares with a server of Spark Connect
    series      numbered records of a place, each written once
    manifest    the exports of a place: a manifest each, which names a vector and a directory
    removal     what was taken out of an export since, and which tables still have the files
    removing    finds the removed entries, and writes the remaining entries of their files
    contents    the files of an export after its removals
    declared    typed columns from a JSON schema: which values fit; no pyspark
    histories   what an incremental fold reads
    export, aggregate, replay, fold    one job each; each can be given to spark-submit too

Contract: errors that can be known without Spark are reported before Spark starts, in one line.
A job that was killed is run again with the same command, and neither loses nor doubles
anything.
"""
