// A program with kafkajs, which prints a line for each thing that worked.
const assert = require("node:assert");
const { CompressionTypes, Kafka, logLevel } = require("kafkajs");

const COUNT = 200;
const PARTITIONS = 3;
const topic = "of-kafkajs";
const kafka = new Kafka({ brokers: process.argv[2].split(","), logLevel: logLevel.NOTHING });

async function main() {
  const admin = kafka.admin();
  await admin.connect();
  await admin.createTopics({
    waitForLeaders: true,
    topics: [{ topic, numPartitions: PARTITIONS, replicationFactor: 3 }],
  });
  assert((await admin.listTopics()).includes(topic));
  console.log("ok creates a topic");

  const producer = kafka.producer({ idempotent: true });
  await producer.connect();
  for (let at = 0; at < COUNT; at += 20) {
    const numbers = [...Array(20).keys()].map((n) => at + n);
    await producer.send({
      topic,
      compression: at % 40 ? CompressionTypes.GZIP : CompressionTypes.None,
      messages: numbers.map((n) => ({ key: `key-${n % 7}`, value: `${n}`, headers: { n: `${n}` } })),
    });
  }
  console.log("ok produces");

  const seen = new Map();
  const last = {};
  let finish;
  const all = new Promise((resolve) => (finish = resolve));
  const members = [0, 1].map(() =>
    kafka.consumer({ groupId: topic, sessionTimeout: 10_000, maxWaitTimeInMs: 500 }),
  );
  for (const member of members) {
    await member.connect();
    await member.subscribe({ topic, fromBeginning: true });
    await member.run({
      eachMessage: async ({ message, partition }) => {
        const value = Number(message.value.toString());
        assert.equal(message.headers.n.toString(), message.value.toString());
        const key = message.key.toString();
        assert(seen.has(value) || value > (last[key] ?? -1), "the order of a key");
        last[key] = value;
        seen.set(value, partition);
        if (seen.size === COUNT) finish();
      },
    });
  }
  await all;
  for (const member of members) await member.disconnect();
  console.log("ok consumes in a group");

  const ends = await admin.fetchTopicOffsets(topic);
  const [{ partitions }] = await admin.fetchOffsets({ groupId: topic, topics: [topic] });
  for (const { partition, high } of ends) {
    assert.equal(partitions.find((each) => each.partition === partition).offset, high);
  }
  console.log("ok has committed the end of each partition");
  assert.equal((await admin.fetchTopicOffsetsByTimestamp(topic, 0)).length, PARTITIONS);
  const { groups } = await admin.describeGroups([topic]);
  assert.equal(groups[0].state, "Empty");
  console.log("ok describes the group");
  await producer.disconnect();
  await admin.deleteTopics({ topics: [topic] });
  assert(!(await admin.listTopics()).includes(topic));
  console.log("ok deletes the topic");
  await admin.disconnect();
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
