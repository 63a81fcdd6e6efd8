"""client/cli: the verbs of the program `lognode` that talk to a cluster.

`parser` says what may be typed, `printer` how results look, `verbs_*` what each verb does, with
the async SDK and nothing else; `importer` reads files. Results go to stdout, all else to stderr.
"""
