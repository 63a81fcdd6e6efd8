"""Consumer groups: what is acknowledged a second, how late, and what one bad key costs the others.

run          `scripts/bench groups`: the parts, the systems in turn, the table
turn         one turn: members, appends, consumers, and the verdict on what they did
plan         what the processes of a turn have to know
appends      the appends, in a process of their own
consume      consumers, in processes of their own
work         what the consumers of a process do with each item, and its record in a file
verdict      judges the records of all processes: each item acknowledged once, in order
growth       memory and files of the members while a group goes through many keys
on_lognode   how to append to lognode, and a group of lognode
on_nats      the same for a work queue of NATS JetStream
on_kafka     the same for a consumer group and a share group of Kafka
systems      the modules of the systems
"""
