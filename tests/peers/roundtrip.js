// Arguments: bootstrap, topic, group, count. Sends count records, reads them back in a group, prints each.
const { Kafka, logLevel, Partitioners } = require("kafkajs");

const [bootstrap, topic, groupId, countText] = process.argv.slice(2);
const count = Number(countText);

async function main() {
  const kafka = new Kafka({ clientId: "roundtrip", brokers: [bootstrap], logLevel: logLevel.ERROR });
  const producer = kafka.producer({ createPartitioner: Partitioners.DefaultPartitioner });
  await producer.connect();
  for (let i = 0; i < count; i++) {
    await producer.send({ topic, acks: -1, messages: [{ key: `key-${i}`, value: `value-${i}` }] });
  }
  await producer.disconnect();

  const consumer = kafka.consumer({ groupId, maxWaitTimeInMs: 200 });
  await consumer.connect();
  await consumer.subscribe({ topics: [topic], fromBeginning: true });
  let seen = 0;
  await new Promise((resolve, reject) => {
    setTimeout(() => reject(new Error(`only ${seen} of ${count} records came`)), 60_000).unref();
    consumer.run({
      eachMessage: async ({ message }) => {
        console.log(`${message.key}=${message.value}`);
        seen += 1;
        if (seen === count) resolve();
      },
    });
  });
  await consumer.disconnect();
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
