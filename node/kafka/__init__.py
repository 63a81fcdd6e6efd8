"""Serve Kafka clients, as a client of the cluster: topics are logs with Kafka partitions.

    server                   the port: connections, and bounds on requests and answers
    door                     the way of a request; answers in their order
    session                  who a connection is, and what it may ask
    clients                  a client of the cluster for each token
    producing, idempotent    appends; appends with sequence numbers
    large_produce            requests to append that are larger than the node keeps
    recent_batches           which records a producer may send again
    joined_appends           appends to one range in few requests
    fetching                 reads and offsets
    describing               metadata; topics that are created and deleted; settings
    absent                   topics that are created when a client names them
    admin                    settings that change; records that are removed
    coordinator, grouping    consumer groups of this node; requests about them
    group_store              committed offsets in a log of the cluster
    group_removal            groups and committed offsets that are removed
    topics, partition_news   logs in use; where their partitions end, and news of it
    room                     memory for requests and answers
    sending                  an answer, which its client may take slowly or not at all
    many                     requests and answers with many elements

Without I/O, as bytes and values alone:

    wire, api                numbers, texts, arrays; versions, and the head of a request
    requests, answers        each request and answer that the door knows, but for those of groups
    group_requests, group_answers
                             requests and answers of consumer groups
    admin_requests, admin_answers
                             requests and answers of administrators
    group                    the members of a group, and their generations
    sasl, scram              how a client shows its token; how a client proves its token
    batches, compression     record batches; what they are packed with
    stored_records           records as entries, and entries as records
    record_columns           the same for whole columns, compiled (`_codec.c`)
    codes, refused           error codes; the error of a part of a request

The contract:

1. The core knows only that a log may have partitions (`client.protocol.key_partitions`), which lie
in front of its keys and never share a range, and that a range remembers the last seq of each
(`statemachine.tails`). Nothing but the door knows Kafka's protocol.
2. An offset is a seq. Offsets of a partition rise, with gaps, and name the same record for ever
(S6). The high watermark is the offset behind the last record, and never falls.
3. What a client sends is checked before it is believed: sizes before memory is taken, counts before
loops, checksums before records. Nothing that a client sends ends the process, and work that grows
with a request goes in slices or to a thread.
4. An error code tells what happened to a record (S11): no code says that a record was not appended
when it may have been.
5. A request is served by a client of the cluster that shows the token of the request's connection,
so the door allows what the port for clients allows (X5). Only groups are checked by the door. In a
cluster with tokens, a connection without a token gets the table of versions and nothing else.
"""
