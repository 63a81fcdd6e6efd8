"""The same Kafka client against lognode's door for Kafka clients, and against Kafka.

run          `scripts/bench door`: the parts, the systems in turn, the table
turn         one turn: members, a topic, producers and consumers, and what they found
plan         what the processes of a turn have to know, and the values of records
produce      a producer, in a process of its own
consume      consumers, in processes of their own
wait         fetches that wait for records, in a process of its own
systems      the systems: nodes that serve Kafka clients, and Kafka
"""
