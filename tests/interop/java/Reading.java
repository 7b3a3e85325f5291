import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.UUID;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** The consumer, outside of groups. */
final class Reading {
    private static final Duration PATIENCE = Duration.ofMillis(Driver.PATIENCE_MS);

    private Reading() {}

    static KafkaConsumer<byte[], byte[]> open(String bootstrap, String... pairs) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("enable.auto.commit", "false");
        for (int i = 0; i < pairs.length; i += 2) {
            settings.put(pairs[i], pairs[i + 1]);
        }
        ByteArrayDeserializer bytes = new ByteArrayDeserializer();
        return new KafkaConsumer<>(settings, bytes, bytes);
    }

    static Object consume(Call call) {
        List<String> pairs = new ArrayList<>(List.of(
                "isolation.level", call.text("isolation", "read_uncommitted"),
                "auto.offset.reset", "earliest"));
        if (call.has("fetch_max_bytes")) {
            String limit = String.valueOf(call.number("fetch_max_bytes"));
            pairs.addAll(List.of("fetch.max.bytes", limit, "max.partition.fetch.bytes", limit));
        }
        call.object("settings").forEach((name, value) -> {
            pairs.add(name);
            pairs.add(String.valueOf(value));
        });
        Map<String, List<Object>> found = new LinkedHashMap<>();
        try (KafkaConsumer<byte[], byte[]> consumer =
                open(call.text("bootstrap"), pairs.toArray(new String[0]))) {
            List<TopicPartition> places = new ArrayList<>();
            for (String topic : call.texts("topics")) {
                found.put(topic, new ArrayList<>());
                consumer.partitionsFor(topic)
                        .forEach(each -> places.add(new TopicPartition(topic, each.partition())));
            }
            Map<TopicPartition, Long> ends = new LinkedHashMap<>(consumer.endOffsets(places));
            ends.values().removeIf(end -> end == 0);
            consumer.assign(ends.keySet());
            long deadline = System.currentTimeMillis() + Driver.PATIENCE_MS;
            while (!ends.isEmpty() && System.currentTimeMillis() < deadline) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(500))) {
                    found.get(record.topic()).add(described(record));
                    TopicPartition place = new TopicPartition(record.topic(), record.partition());
                    if (record.offset() + 1 >= ends.getOrDefault(place, 0L)) {
                        ends.remove(place);
                    }
                }
            }
            Throttled.note("fetch", consumer.metrics());
        }
        return found;
    }

    static Object tail(Call call) {
        KafkaConsumer<byte[], byte[]> consumer = open(
                call.text("bootstrap"),
                "fetch.max.wait.ms", String.valueOf(call.number("max_wait_ms")));
        try {
            Set<TopicPartition> place = Set.of(new TopicPartition(call.text("topic"), 0));
            consumer.assign(place);
            consumer.seekToEnd(place);
            return described(first(consumer));
        } finally {
            // It has asked for more already and would wait for that answer.
            consumer.close(Duration.ZERO);
        }
    }

    static Object offsets(Call call) {
        Map<String, Object> report = new LinkedHashMap<>();
        String bootstrap = call.text("bootstrap");
        String group = call.text("group");
        TopicPartition place = new TopicPartition(call.text("topic"), 0);
        Set<TopicPartition> places = Set.of(place);
        try (KafkaConsumer<byte[], byte[]> consumer = open(bootstrap, "group.id", group)) {
            consumer.assign(places);
            report.put("committed at first", consumer.committed(places).get(place));
            consumer.commitSync(Map.of(place, new OffsetAndMetadata(4, "read to four, ü")));
            OffsetAndMetadata committed = consumer.committed(places).get(place);
            report.put("committed", committed.offset());
            report.put("metadata", committed.metadata());
        }
        try (KafkaConsumer<byte[], byte[]> consumer = open(bootstrap, "group.id", group)) {
            consumer.assign(places);
            report.put("resumed at", first(consumer).offset());
            consumer.seek(place, 7);
            report.put("sought", first(consumer).offset());
            report.put("beginning", consumer.beginningOffsets(places).get(place));
            report.put("end", consumer.endOffsets(places).get(place));
            long base = call.number("base_ms");
            report.put("by time", byTime(consumer, place, base + 2_500));
            report.put("after the last", byTime(consumer, place, base + 999_000));
        }
        for (String reset : List.of("earliest", "latest", "none")) {
            String other = UUID.randomUUID().toString();
            try (KafkaConsumer<byte[], byte[]> consumer =
                    open(bootstrap, "group.id", other, "auto.offset.reset", reset)) {
                consumer.assign(places);
                report.put(reset, consumer.position(place, PATIENCE));
                if (reset.equals("earliest")) {
                    consumer.seek(place, 1_000);
                    report.put("out of range", first(consumer).offset());
                }
            } catch (RuntimeException error) {
                report.put(reset, error.getClass().getSimpleName());
            }
        }
        return report;
    }

    private static Long byTime(
            KafkaConsumer<byte[], byte[]> consumer, TopicPartition place, long timeMs) {
        OffsetAndTimestamp found = consumer.offsetsForTimes(Map.of(place, timeMs)).get(place);
        return found == null ? null : found.offset();
    }

    private static ConsumerRecord<byte[], byte[]> first(KafkaConsumer<byte[], byte[]> consumer) {
        ConsumerRecords<byte[], byte[]> records = consumer.poll(PATIENCE);
        if (records.isEmpty()) {
            throw new IllegalStateException("nothing came");
        }
        return records.iterator().next();
    }

    private static Map<String, Object> described(ConsumerRecord<byte[], byte[]> record) {
        Map<String, Object> fields = new LinkedHashMap<>();
        fields.put("partition", record.partition());
        fields.put("offset", record.offset());
        fields.put("timestamp", record.timestamp());
        fields.put("key", Call.packed(record.key()));
        fields.put("value", Call.packed(record.value()));
        List<Object> headers = new ArrayList<>();
        for (Header header : record.headers()) {
            headers.add(Arrays.asList(header.key(), Call.packed(header.value())));
        }
        fields.put("headers", headers);
        return fields;
    }
}
