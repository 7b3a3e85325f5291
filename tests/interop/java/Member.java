import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;

/** A member of a group, until it is told to close. */
final class Member implements ConsumerRebalanceListener {
    private static final Map<String, String> ASSIGNORS = Map.of(
            "range", "org.apache.kafka.clients.consumer.RangeAssignor",
            "cooperative-sticky", "org.apache.kafka.clients.consumer.CooperativeStickyAssignor");

    static Object run(Call call) {
        List<String> pairs = new ArrayList<>(List.of(
                "group.id", call.text("group"),
                "session.timeout.ms", String.valueOf(call.number("session_ms")),
                "heartbeat.interval.ms", String.valueOf(call.number("heartbeat_ms")),
                "partition.assignment.strategy", ASSIGNORS.get(call.text("assignor", "range")),
                "auto.offset.reset", "earliest",
                "fetch.max.wait.ms", "200",
                "metadata.max.age.ms", "2000"));
        if (call.has("instance_id")) {
            pairs.addAll(List.of("group.instance.id", call.text("instance_id")));
        }
        KafkaConsumer<byte[], byte[]> consumer =
                Reading.open(call.text("bootstrap"), pairs.toArray(new String[0]));
        consumer.subscribe(List.of(call.text("topic")), new Member());
        while (!Driver.toldToClose()) {
            List<List<Object>> read = new ArrayList<>();
            for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(100))) {
                String value = new String(record.value(), StandardCharsets.UTF_8);
                read.add(List.of(record.partition(), record.offset(), value));
            }
            if (!read.isEmpty()) {
                Driver.event("records", "records", read);
                try {
                    consumer.commitSync();
                } catch (KafkaException error) {
                    // The group has moved on: whoever has the partition now reads these again.
                    Driver.event("commit refused", "code", Driver.codeOf(error));
                }
            }
        }
        consumer.close();
        Driver.event("closed", null, null);
        return null;
    }

    @Override
    public void onPartitionsAssigned(Collection<TopicPartition> places) {
        tell("assigned", places);
    }

    @Override
    public void onPartitionsRevoked(Collection<TopicPartition> places) {
        tell("revoked", places);
    }

    @Override
    public void onPartitionsLost(Collection<TopicPartition> places) {
        tell("lost", places);
    }

    private static void tell(String event, Collection<TopicPartition> places) {
        Driver.event(
                event,
                "partitions",
                places.stream().map(TopicPartition::partition).collect(Collectors.toList()));
    }
}
