import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** Arguments: bootstrap, topic, group, count. Sends count records, reads them back in a group, prints each. */
public final class RoundTrip {
    public static void main(String[] args) throws Exception {
        String topic = args[1];
        int count = Integer.parseInt(args[3]);
        Map<String, Object> common = Map.of("bootstrap.servers", args[0]);
        Properties producing = new Properties();
        producing.putAll(common);
        producing.put("acks", "all");
        try (KafkaProducer<String, String> producer =
                new KafkaProducer<>(producing, new StringSerializer(), new StringSerializer())) {
            for (int i = 0; i < count; i++) {
                producer.send(new ProducerRecord<>(topic, "key-" + i, "value-" + i)).get();
            }
        }
        Properties consuming = new Properties();
        consuming.putAll(common);
        consuming.put("group.id", args[2]);
        consuming.put("auto.offset.reset", "earliest");
        int seen = 0;
        long end = System.nanoTime() + Duration.ofSeconds(60).toNanos();
        try (KafkaConsumer<String, String> consumer =
                new KafkaConsumer<>(consuming, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of(topic));
            while (seen < count && System.nanoTime() < end) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(200))) {
                    System.out.println(record.key() + "=" + record.value());
                    seen++;
                }
            }
            consumer.commitSync();
        }
        System.exit(seen == count ? 0 : 1);
    }
}
