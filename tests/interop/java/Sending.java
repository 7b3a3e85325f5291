import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** The producer. */
final class Sending {
    private Sending() {}

    @SuppressWarnings("unchecked")
    static Object produce(Call call) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", call.text("bootstrap"));
        settings.put("compression.type", call.text("codec", "none"));
        settings.put("acks", call.text("acks", "all"));
        // Idempotence is the producer's own default, but for acks that contradict it.
        if (!call.text("acks", "all").equals("all")) {
            settings.put("enable.idempotence", "false");
        }
        settings.put("linger.ms", "20");
        call.object("settings").forEach((name, value) -> settings.put(name, String.valueOf(value)));
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        List<List<Long>> answers = new ArrayList<>();
        ByteArraySerializer bytes = new ByteArraySerializer();
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(settings, bytes, bytes)) {
            for (Map<String, Object> record : call.objects("records")) {
                ProducerRecord<byte[], byte[]> made = new ProducerRecord<>(
                        call.text("topic"),
                        ((Number) record.get("partition")).intValue(),
                        ((Number) record.get("timestamp")).longValue(),
                        Call.unpacked(record.get("key")),
                        Call.unpacked(record.get("value")));
                for (List<Object> header : (List<List<Object>>) record.get("headers")) {
                    made.headers().add((String) header.get(0), Call.unpacked(header.get(1)));
                }
                sent.add(producer.send(made));
            }
            for (Future<RecordMetadata> each : sent) {
                RecordMetadata found = each.get(Driver.PATIENCE_MS, TimeUnit.MILLISECONDS);
                answers.add(List.of((long) found.partition(), found.hasOffset() ? found.offset() : -1L));
            }
            Throttled.note("produce", producer.metrics());
        }
        return answers;
    }
}
