"""client/cli: the verbs of the program `lognode` that talk to a cluster.

`parser` defines the command line, `printer` the output, and the `verbs_*` the work of each verb,
which uses only the async SDK; `rows` and `load` read files. Results go to stdout, everything else
to stderr.
"""
