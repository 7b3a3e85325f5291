// kafkajs, driven by the tests: JSON lines in and out, as in tests/interop/programs/lines.py.
'use strict';

const fs = require('fs');
const path = require('path');
const readline = require('readline');
const { randomUUID } = require('crypto');
const {
  AssignerProtocol,
  CompressionCodecs,
  CompressionTypes,
  ConfigResourceTypes,
  Kafka,
  KafkaJSProtocolError,
  Partitioners,
  logLevel,
} = require('kafkajs');

const PATIENCE_MS = 40_000;

// kafkajs brings gzip; the others are told to it by the application.
function addCodecs() {
  CompressionCodecs[CompressionTypes.Snappy] = require('kafkajs-snappy');
  const lz4 = require('lz4-napi');
  CompressionCodecs[CompressionTypes.LZ4] = () => ({
    compress: async (encoder) => lz4.compressFrame(encoder.buffer),
    decompress: async (buffer) => lz4.decompressFrame(buffer),
  });
  const zstd = require('@bokuweb/zstd-wasm');
  const ready = zstd.init();
  CompressionCodecs[CompressionTypes.ZSTD] = () => ({
    compress: async (encoder) => (await ready, Buffer.from(zstd.compress(encoder.buffer, 3))),
    decompress: async (buffer) => (await ready, Buffer.from(zstd.decompress(buffer))),
  });
}

const CODECS = {
  none: CompressionTypes.None,
  gzip: CompressionTypes.GZIP,
  snappy: CompressionTypes.Snappy,
  lz4: CompressionTypes.LZ4,
  zstd: CompressionTypes.ZSTD,
};

function say(answer) {
  // Synchronous, so that a kill never cuts a line that was said before it.
  fs.writeSync(1, JSON.stringify(answer) + '\n');
}

function cluster(bootstrap, settings = {}) {
  return new Kafka({
    clientId: 'interop',
    brokers: [bootstrap],
    logLevel: logLevel.ERROR,
    ...settings,
  });
}

const unpacked = (text) => (text === null ? null : Buffer.from(text, 'base64'));
const packed = (bytes) => (bytes === null || bytes === undefined ? null : bytes.toString('base64'));

function described(partition, message) {
  const headers = [];
  for (const [name, value] of Object.entries(message.headers || {})) {
    for (const each of Array.isArray(value) ? value : [value]) headers.push([name, packed(each)]);
  }
  return {
    partition,
    offset: Number(message.offset),
    timestamp: Number(message.timestamp),
    key: packed(message.key),
    value: packed(message.value),
    headers,
  };
}

// Headers of the same name become a list: kafkajs keeps them in an object.
function headersOf(record) {
  const headers = {};
  for (const [name, value] of record.headers) {
    const bytes = unpacked(value);
    headers[name] = name in headers ? [].concat(headers[name], bytes) : bytes;
  }
  return headers;
}

// kafkajs makes one batch of what one call is given; a large record goes alone, to fit.
function batchesOf(records, batchRecords) {
  const batches = [];
  for (const record of records) {
    const last = batches[batches.length - 1];
    const large = record.value !== null && record.value.length > 500_000;
    if (!last || large || last.large || last.records.length >= batchRecords) {
      batches.push({ large, records: [record] });
    } else {
      last.records.push(record);
    }
  }
  return batches.map((each) => each.records);
}

// How long requests have waited before they were sent, at most: kafkajs keeps them back for the
// time that the last answer of the broker has told.
const keptBackMs = {};

function watch(client, kind) {
  keptBackMs[kind] = 0;
  client.on(client.events.REQUEST, ({ payload: { apiName, pendingDuration } }) => {
    if (apiName.toLowerCase() !== kind) return;
    keptBackMs[kind] = Math.max(keptBackMs[kind], pendingDuration);
  });
}

async function produce({
  bootstrap,
  topic,
  records,
  codec = 'none',
  acks = 'all',
  idempotent = false,
  settings = {},
}) {
  const { batchRecords = 100, ...rest } = settings;
  const producer = cluster(bootstrap, rest).producer({
    idempotent,
    maxInFlightRequests: idempotent ? 1 : undefined,
    createPartitioner: Partitioners.DefaultPartitioner,
  });
  watch(producer, 'produce');
  await producer.connect();
  const answers = [];
  try {
    for (const batch of batchesOf(records, batchRecords)) {
      const sent = await producer.send({
        topic,
        acks: acks === 'all' ? -1 : Number(acks),
        compression: CODECS[codec],
        messages: batch.map((record) => ({
          key: unpacked(record.key),
          value: unpacked(record.value),
          partition: record.partition,
          timestamp: String(record.timestamp),
          headers: headersOf(record),
        })),
      });
      const next = {};
      for (const each of sent) next[each.partition] = Number(each.baseOffset);
      for (const record of batch) {
        const known = record.partition in next;
        answers.push([record.partition, known ? next[record.partition]++ : -1]);
      }
    }
  } finally {
    await producer.disconnect();
  }
  return answers;
}

async function endsOf(admin, topics) {
  const ends = {};
  for (const topic of topics) {
    for (const { partition, low, high } of await admin.fetchTopicOffsets(topic)) {
      if (Number(high) > Number(low)) ends[`${topic}/${partition}`] = Number(high);
    }
  }
  return ends;
}

async function withAdmin(bootstrap, work) {
  // kafkajs asks again and again where others give up at once.
  const admin = cluster(bootstrap, { retry: { retries: 2, initialRetryTime: 20 } }).admin();
  await admin.connect();
  try {
    return await work(admin);
  } finally {
    await admin.disconnect();
  }
}

function patiently(promise, what) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(new Error(what)), PATIENCE_MS);
    promise.then(resolve, reject).finally(() => clearTimeout(timer));
  });
}

async function consume({
  bootstrap,
  topics,
  isolation = 'read_uncommitted',
  fetch_max_bytes,
  settings = {},
}) {
  const found = Object.fromEntries(topics.map((topic) => [topic, []]));
  const ends = await withAdmin(bootstrap, (admin) => endsOf(admin, topics));
  if (Object.keys(ends).length === 0) return found;
  const limits = fetch_max_bytes
    ? { maxBytes: fetch_max_bytes, maxBytesPerPartition: fetch_max_bytes }
    : {};
  const consumer = cluster(bootstrap, settings).consumer({
    groupId: randomUUID(),
    readUncommitted: isolation === 'read_uncommitted',
    maxWaitTimeInMs: 200,
    ...limits,
  });
  watch(consumer, 'fetch');
  await consumer.connect();
  await consumer.subscribe({ topics, fromBeginning: true });
  const done = new Promise((resolve) => {
    consumer.run({
      autoCommit: false,
      eachMessage: async ({ topic, partition, message }) => {
        found[topic].push(described(partition, message));
        const place = `${topic}/${partition}`;
        if (Number(message.offset) + 1 >= ends[place]) delete ends[place];
        if (Object.keys(ends).length === 0) resolve();
      },
    });
  });
  await patiently(done, `never came: ${JSON.stringify(ends)}`).finally(() => consumer.disconnect());
  return found;
}

async function tail({ bootstrap, topic, max_wait_ms }) {
  const consumer = cluster(bootstrap).consumer({
    groupId: randomUUID(),
    maxWaitTimeInMs: max_wait_ms,
  });
  await consumer.connect();
  await consumer.subscribe({ topics: [topic], fromBeginning: false });
  const first = new Promise((resolve) => {
    consumer.run({
      autoCommit: false,
      eachMessage: async ({ partition, message }) => resolve(described(partition, message)),
    });
  });
  const record = await patiently(first, 'nothing came');
  await consumer.disconnect();
  return record;
}

// kafkajs has one assignor, with a name of its own. This one has the name that every other client
// knows, so that all can be in one group.
function rangeAssigner({ cluster: known }) {
  return {
    name: 'range',
    version: 0,
    protocol: ({ topics }) => ({
      name: 'range',
      metadata: AssignerProtocol.MemberMetadata.encode({
        version: 0,
        topics,
        userData: Buffer.alloc(0),
      }),
    }),
    assign: async ({ members, topics }) => {
      const ids = members.map((each) => each.memberId).sort();
      const share = Object.fromEntries(ids.map((id) => [id, {}]));
      for (const topic of topics) {
        const partitions = known.findTopicPartitionMetadata(topic).map((each) => each.partitionId);
        partitions.sort((a, b) => a - b);
        ids.forEach((id, index) => {
          const from = Math.floor((index * partitions.length) / ids.length);
          const to = Math.floor(((index + 1) * partitions.length) / ids.length);
          share[id][topic] = partitions.slice(from, to);
        });
      }
      return ids.map((id) => ({
        memberId: id,
        memberAssignment: AssignerProtocol.MemberAssignment.encode({
          version: 0,
          assignment: share[id],
          userData: Buffer.alloc(0),
        }),
      }));
    },
  };
}

async function member({ bootstrap, group, topic, session_ms, heartbeat_ms }, closing) {
  const consumer = cluster(bootstrap).consumer({
    groupId: group,
    sessionTimeout: session_ms,
    heartbeatInterval: heartbeat_ms,
    rebalanceTimeout: 30_000,
    maxWaitTimeInMs: 200,
    partitionAssigners: [rangeAssigner],
    metadataMaxAge: 2_000,
  });
  const { GROUP_JOIN, REBALANCING } = consumer.events;
  let owned = [];
  consumer.on(GROUP_JOIN, ({ payload }) => {
    owned = payload.memberAssignment[topic] || [];
    say({ event: 'assigned', partitions: owned });
  });
  consumer.on(REBALANCING, () => {
    say({ event: 'revoked', partitions: owned });
    owned = [];
  });
  await consumer.connect();
  await consumer.subscribe({ topics: [topic], fromBeginning: true });
  await consumer.run({
    autoCommit: false,
    eachBatch: async ({ batch, resolveOffset, heartbeat, isRunning, isStale }) => {
      if (!isRunning() || isStale()) return;
      const read = batch.messages.map((m) => [batch.partition, Number(m.offset), String(m.value)]);
      say({ event: 'records', records: read });
      const last = batch.lastOffset();
      try {
        await consumer.commitOffsets([
          { topic, partition: batch.partition, offset: String(Number(last) + 1) },
        ]);
      } catch (error) {
        // The group has moved on: whoever has the partition now will read these again.
        say({ event: 'commit refused', code: error.code === undefined ? null : error.code });
      }
      resolveOffset(last);
      await heartbeat();
    },
  });
  await closing;
  await consumer.disconnect();
  say({ event: 'closed' });
}

// Reads one record, from where the group stands or from an offset.
async function firstOffset(bootstrap, topic, groupId, { seek, fromBeginning = false } = {}) {
  const consumer = cluster(bootstrap).consumer({ groupId, maxWaitTimeInMs: 200 });
  await consumer.connect();
  await consumer.subscribe({ topics: [topic], fromBeginning });
  const first = new Promise((resolve) => {
    consumer.run({
      autoCommit: false,
      eachMessage: async ({ message }) => {
        const offset = Number(message.offset);
        if (seek === undefined || seek > 100 || offset === seek) resolve(offset);
      },
    });
    if (seek !== undefined) consumer.seek({ topic, partition: 0, offset: String(seek) });
  });
  return patiently(first, 'nothing came').finally(() => consumer.disconnect());
}

async function offsets({ bootstrap, topic, group, base_ms }) {
  const report = {};
  await withAdmin(bootstrap, async (admin) => {
    const committed = async () => {
      const [{ partitions }] = await admin.fetchOffsets({ groupId: group, topics: [topic] });
      return partitions[0];
    };
    const first = await committed();
    report['committed at first'] = first.offset === '-1' ? null : Number(first.offset);
    const consumer = cluster(bootstrap).consumer({ groupId: group });
    await consumer.connect();
    await consumer.subscribe({ topics: [topic], fromBeginning: true });
    // kafkajs commits only as a running member.
    const joined = new Promise((resolve) => consumer.on(consumer.events.GROUP_JOIN, resolve));
    await consumer.run({ autoCommit: false, eachMessage: async () => {} });
    await joined;
    await consumer.commitOffsets([
      { topic, partition: 0, offset: '4', metadata: 'read to four, ü' },
    ]);
    await consumer.disconnect();
    const now = await committed();
    report.committed = Number(now.offset);
    report.metadata = now.metadata;
    report['resumed at'] = await firstOffset(bootstrap, topic, group);
    report.sought = await firstOffset(bootstrap, topic, group, { seek: 7 });
    const [{ low, high }] = await admin.fetchTopicOffsets(topic);
    report.beginning = Number(low);
    report.end = Number(high);
    const byTime = async (time) =>
      Number((await admin.fetchTopicOffsetsByTimestamp(topic, time))[0].offset);
    report['by time'] = await byTime(base_ms + 2_500);
    // kafkajs itself answers the end where the broker finds nothing.
    report['after the last'] = await byTime(base_ms + 999_000);
    const other = { fromBeginning: true };
    report.earliest = await firstOffset(bootstrap, topic, randomUUID(), other);
    const beyond = { fromBeginning: true, seek: 1_000 };
    report['out of range'] = await firstOffset(bootstrap, topic, randomUUID(), beyond);
  });
  return report;
}

function codeOf(error) {
  for (let each = error; each; each = each.cause || (each.errors && each.errors[0])) {
    if (each instanceof KafkaJSProtocolError || typeof each.code === 'number') return each.code;
  }
  return null;
}

async function refusal(report, step, call) {
  try {
    report[step] = ['not refused', await call()];
  } catch (error) {
    const code = codeOf(error);
    report[step] = code === null ? error.name : code;
  }
}

async function adminTopics(admin, report, topic) {
  const { brokers, controller, clusterId } = await admin.describeCluster();
  report.cluster = [brokers.length, controller, clusterId];
  const create = (name, entries = []) =>
    admin.createTopics({
      topics: [{ topic: name, numPartitions: 3, replicationFactor: 1, configEntries: entries }],
    });
  const count = async () =>
    (await admin.fetchTopicMetadata({ topics: [topic] })).topics[0].partitions.length;
  await create(topic, [{ name: 'retention.ms', value: '7200000' }]);
  report.created = await count();
  report.listed = (await admin.listTopics()).includes(topic);
  // kafkajs answers false where a topic exists.
  report['create again'] = await create(topic);
  await refusal(report, 'bad name', () => create('no/slash'));
  const banana = [{ name: 'retention.ms', value: 'banana' }];
  await refusal(report, 'bad config', () => create(`${topic}-x`, banana));
  const grow = (total) =>
    admin.createPartitions({ topicPartitions: [{ topic, count: total }] });
  await grow(5);
  report.grown = await count();
  await refusal(report, 'shrunk', () => grow(2));
}

async function adminConfigs(admin, report, topic) {
  const values = async (type, name) => {
    const { resources } = await admin.describeConfigs({
      includeSynonyms: false,
      resources: [{ type, name }],
    });
    const entries = resources[0].configEntries;
    return Object.fromEntries(entries.map((each) => [each.configName, each.configValue]));
  };
  report.config = (await values(ConfigResourceTypes.TOPIC, topic))['retention.ms'];
  const configEntries = [
    { name: 'retention.ms', value: '3600000' },
    { name: 'segment.bytes', value: '1048576' },
  ];
  await admin.alterConfigs({
    validateOnly: false,
    resources: [{ type: ConfigResourceTypes.TOPIC, name: topic, configEntries }],
  });
  const now = await values(ConfigResourceTypes.TOPIC, topic);
  report.altered = [now['retention.ms'], now['segment.bytes']];
  const broker = await values(ConfigResourceTypes.BROKER, '1');
  report['broker config'] = broker['auto.create.topics.enable'];
}

async function adminData(admin, report, data, baseMs) {
  const [{ low, high }] = await admin.fetchTopicOffsets(data);
  const [{ offset }] = await admin.fetchTopicOffsetsByTimestamp(data, baseMs + 2_500);
  // kafkajs cannot ask for the largest timestamp.
  report.offsets = [Number(low), Number(high), Number(offset)];
  const trim = (upto) =>
    admin.deleteTopicRecords({
      topic: data,
      partitions: [{ partition: 0, offset: String(upto) }],
    });
  await trim(4);
  const [after] = await admin.fetchTopicOffsets(data);
  report.trimmed = [4, Number(after.low)];
  // kafkajs looks at the end itself and refuses before it asks.
  await refusal(report, 'trim beyond', () => trim(1_000));
}

async function adminGroups(admin, report, data, group) {
  const listed = async () =>
    (await admin.listGroups()).groups.some((each) => each.groupId === group);
  const committed = async () => {
    const found = {};
    for (const { topic, partitions } of await admin.fetchOffsets({ groupId: group })) {
      for (const each of partitions) found[`${topic}-${each.partition}`] = Number(each.offset);
    }
    return found;
  };
  report['group listed'] = await listed();
  const { groups } = await admin.describeGroups([group]);
  report.group = [groups[0].state, groups[0].members.length];
  report['group offsets'] = await committed();
  await admin.setOffsets({
    groupId: group,
    topic: data,
    partitions: [{ partition: 0, offset: '2' }],
  });
  report['group moved'] = await committed();
  await admin.deleteGroups([group]);
  report['group deleted'] = !(await listed());
  // kafkajs gives the codes per group in its error.
  try {
    report['delete group again'] = ['not refused', await admin.deleteGroups([group])];
  } catch (error) {
    report['delete group again'] = error.groups[0].errorCode;
  }
}

async function admin({ bootstrap, topic, data, group, base_ms }) {
  const report = {};
  await withAdmin(bootstrap, async (client) => {
    await adminTopics(client, report, topic);
    await adminConfigs(client, report, topic);
    await adminData(client, report, data, base_ms);
    await adminGroups(client, report, data, group);
    await client.deleteTopics({ topics: [topic] });
    report.deleted = !(await client.listTopics()).includes(topic);
    await refusal(report, 'delete again', () => client.deleteTopics({ topics: [topic] }));
  });
  return report;
}

const transactional = new Map();

function transactionalProducer(bootstrap, transactionalId, timeoutMs) {
  // Whoever was fenced is told so at once, not after all of its retries.
  return cluster(bootstrap, { retry: { retries: 2, initialRetryTime: 20 } }).producer({
    transactionalId,
    transactionTimeout: timeoutMs,
    maxInFlightRequests: 1,
    idempotent: true,
    createPartitioner: Partitioners.DefaultPartitioner,
  });
}

// A transactional producer lives on under its name.
async function transaction({ step, name, bootstrap, transactional_id, timeout_ms, topic, values }) {
  const known = transactional.get(name);
  if (step === 'open') {
    const producer = transactionalProducer(bootstrap, transactional_id, timeout_ms);
    await producer.connect();
    transactional.set(name, { producer });
  } else if (step === 'begin') {
    known.open = await known.producer.transaction();
  } else if (step === 'write') {
    await known.open.send({ topic, messages: values.map((value) => ({ value, partition: 0 })) });
  } else if (step === 'commit') {
    await known.open.commit();
  } else if (step === 'abort') {
    await known.open.abort();
  } else {
    transactional.delete(name);
    await known.producer.disconnect();
  }
  return null;
}

// Read records as a member of a group and write them on, with their offsets, as one step.
async function relay({ bootstrap, transactional_id, group, source, target, count, commit }) {
  const producer = transactionalProducer(bootstrap, transactional_id, 60_000);
  await producer.connect();
  const consumer = cluster(bootstrap).consumer({ groupId: group, maxWaitTimeInMs: 200 });
  await consumer.connect();
  await consumer.subscribe({ topics: [source], fromBeginning: true });
  const read = [];
  const done = new Promise((resolve) => {
    consumer.run({
      autoCommit: false,
      eachMessage: async ({ partition, message }) => {
        if (read.length < count) read.push({ partition, message });
        if (read.length === count) resolve();
      },
    });
  });
  try {
    await patiently(done, `${read.length} of ${count} came`);
    const open = await producer.transaction();
    const messages = read.map(({ message }) => ({ value: message.value, partition: 0 }));
    await open.send({ topic: target, messages });
    const next = {};
    for (const { partition, message } of read) next[partition] = Number(message.offset) + 1;
    const partitions = Object.entries(next).map(([partition, offset]) => ({
      partition: Number(partition),
      offset: String(offset),
    }));
    await open.sendOffsets({ consumerGroupId: group, topics: [{ topic: source, partitions }] });
    await (commit ? open.commit() : open.abort());
  } finally {
    await consumer.disconnect();
    await producer.disconnect();
  }
  return null;
}

const throttled = async () => keptBackMs;

const OPERATIONS = { produce, consume, throttled, tail, offsets, admin, transaction, relay };

async function main() {
  addCodecs();
  const lines = readline.createInterface({ input: process.stdin });
  let close;
  const closing = new Promise((resolve) => (close = resolve));
  const queue = [];
  let wake = () => {};
  lines.on('line', (line) => {
    const call = JSON.parse(line);
    if (call.op === 'close') close();
    else queue.push(call);
    wake();
  });
  let ended = false;
  lines.on('close', () => {
    ended = true;
    close();
    wake();
  });
  while (!ended || queue.length > 0) {
    if (queue.length === 0) await new Promise((resolve) => (wake = resolve));
    if (queue.length === 0) continue;
    const { op, ...args } = queue.shift();
    try {
      if (op === 'member') await member(args, closing);
      else say({ result: await OPERATIONS[op](args) });
    } catch (error) {
      say({ error: error.name, code: codeOf(error), message: error.message });
    }
  }
}

main().then(
  () => process.exit(0),
  (error) => {
    process.stderr.write(`${path.basename(__filename)}: ${error.stack}\n`);
    process.exit(1);
  },
);
