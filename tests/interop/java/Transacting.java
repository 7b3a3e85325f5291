import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Transactional producers, which live on under their names. */
final class Transacting {
    private static final Map<String, KafkaProducer<byte[], byte[]>> OPEN = new HashMap<>();

    private Transacting() {}

    static Object step(Call call) throws Exception {
        String name = call.text("name");
        switch (call.text("step")) {
            case "open":
                OPEN.put(name, open(call, call.number("timeout_ms")));
                break;
            case "begin":
                OPEN.get(name).beginTransaction();
                break;
            case "write":
                write(OPEN.get(name), call);
                break;
            case "commit":
                OPEN.get(name).commitTransaction();
                break;
            case "abort":
                OPEN.get(name).abortTransaction();
                break;
            default:
                OPEN.remove(name).close(Duration.ZERO);
        }
        return null;
    }

    private static KafkaProducer<byte[], byte[]> open(Call call, long timeoutMs) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", call.text("bootstrap"));
        settings.put("transactional.id", call.text("transactional_id"));
        settings.put("transaction.timeout.ms", String.valueOf(timeoutMs));
        settings.put("max.block.ms", String.valueOf(Driver.PATIENCE_MS));
        ByteArraySerializer bytes = new ByteArraySerializer();
        KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(settings, bytes, bytes);
        producer.initTransactions();
        return producer;
    }

    private static void write(KafkaProducer<byte[], byte[]> producer, Call call) throws Exception {
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        for (String value : call.texts("values")) {
            byte[] bytes = value.getBytes(StandardCharsets.UTF_8);
            sent.add(producer.send(new ProducerRecord<>(call.text("topic"), 0, null, bytes)));
        }
        for (Future<RecordMetadata> each : sent) {
            each.get(Driver.PATIENCE_MS, TimeUnit.MILLISECONDS);
        }
    }

    /** Read records as a member of a group and write them on, with their offsets, as one step. */
    static Object relay(Call call) {
        try (KafkaProducer<byte[], byte[]> producer = open(call, 60_000);
                KafkaConsumer<byte[], byte[]> consumer = Reading.open(
                        call.text("bootstrap"),
                        "group.id", call.text("group"),
                        "isolation.level", "read_committed",
                        "max.poll.records", String.valueOf(call.number("count")),
                        "auto.offset.reset", "earliest")) {
            consumer.subscribe(List.of(call.text("source")));
            producer.beginTransaction();
            long deadline = System.currentTimeMillis() + Driver.PATIENCE_MS;
            for (long left = call.number("count"); left > 0; ) {
                if (System.currentTimeMillis() > deadline) {
                    throw new IllegalStateException(left + " never came");
                }
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(200))) {
                    producer.send(new ProducerRecord<>(call.text("target"), 0, null, record.value()));
                    left--;
                }
            }
            Map<TopicPartition, OffsetAndMetadata> positions = new HashMap<>();
            for (TopicPartition place : consumer.assignment()) {
                positions.put(place, new OffsetAndMetadata(consumer.position(place)));
            }
            producer.sendOffsetsToTransaction(positions, consumer.groupMetadata());
            if (call.flag("commit")) {
                producer.commitTransaction();
            } else {
                producer.abortTransaction();
            }
        }
        return null;
    }
}
