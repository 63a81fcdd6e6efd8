"""client/cli: the verbs of the program `lognode` that talk to a cluster.

    main                     find the verb, run the verb, report errors by line and exit code
    verb                     what a verb is
    clusters                 which cluster a verb talks to, and the user's file of clusters
    words                    flags before the verb, and hints for words that are nearly right
    parser, quantities       the command line; sizes and ages for people
    examples                 an example for each verb
    completion               scripts that complete verbs and flags in shells
    snapshots                reads of a snapshot that was written to a file
    printer, progress        results as tables or JSON; lines that say how far a verb is
    top_screen, top_groups   the screen of `lognode top` as lines; the groups on the screen
    load, import_files       `lognode import`; rows from CSV, JSON lines and Parquet files
    verbs_logs, verbs_write, verbs_read, verbs_producers,
    verbs_cursors, verbs_groups, verbs_views,
    verbs_consume            logs, their entries and their readers
    verbs_ranges, verbs_recover, verbs_nodes, verbs_cluster, verbs_top,
    verbs_reports            the cluster
    verbs_tokens, verbs_quotas    who may do what, and how much
    verbs_backup             backups, by `client/backup/`
    object_stores            the flags of verbs with an object store
    verbs_bench              load, by `client/bench/`

The contract: verbs use only the async SDK. Results go to stdout, everything else to stderr.
"""
