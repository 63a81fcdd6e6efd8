"""Test suites and programs that were not written here, against the port for Kafka clients.

    main             the command: starts a cluster, runs a suite, says what passed
    brokers          the cluster; processes that a suite starts
    suites           what a suite is, and the outcome of a run
    python_suites    confluent-kafka and aiokafka, with pytest
    librdkafka       librdkafka's tests, from Debian's source package
    franz_go         franz-go's tests, from the Go module proxy
    java             console, benchmarks, Connect and Streams of Kafka
    spark            Spark's source and sink for Kafka, with a program in spark_job
    spark_job        writes, copies or reads with Spark
    kafkajs          a program with kafkajs

Each suite is installed from a package registry into a work folder. Nothing of a suite is kept in
this repository. Each suite lists the tests that are left out, each with the reason; docs/kafka.md
has the figures.
"""
