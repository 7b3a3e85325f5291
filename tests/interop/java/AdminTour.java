import java.lang.reflect.Method;
import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.Callable;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ConsumerGroupDescription;
import org.apache.kafka.clients.admin.DescribeClusterResult;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;

/** Everything an administrator can call, and what came of it. */
final class AdminTour {
    private final Admin admin;
    private final Map<String, Object> report = new LinkedHashMap<>();

    private AdminTour(Admin admin) {
        this.admin = admin;
    }

    static Object run(Call call) throws Exception {
        String topic = call.text("topic");
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", call.text("bootstrap")))) {
            AdminTour tour = new AdminTour(admin);
            tour.topics(topic);
            tour.configs(topic);
            tour.data(call.text("data"), call.number("base_ms"));
            tour.groups(call.text("data"), call.text("group"));
            admin.deleteTopics(Set.of(topic)).all().get();
            tour.report.put("deleted", !admin.listTopics().names().get().contains(topic));
            tour.refusal("delete again", () -> admin.deleteTopics(Set.of(topic)).all().get());
            return tour.report;
        }
    }

    private void refusal(String step, Callable<?> call) {
        try {
            report.put(step, List.of("not refused", String.valueOf(call.call())));
        } catch (Exception thrown) {
            Throwable error = Driver.unwrapped(thrown);
            Integer code = Driver.codeOf(error);
            report.put(step, code == null ? error.getClass().getSimpleName() : code);
        }
    }

    private void topics(String topic) throws Exception {
        DescribeClusterResult cluster = admin.describeCluster();
        report.put("cluster", List.of(
                cluster.nodes().get().size(),
                cluster.controller().get().id(),
                cluster.clusterId().get()));
        create(topic, Map.of("retention.ms", "7200000"));
        report.put("created", count(topic));
        report.put("listed", admin.listTopics().names().get().contains(topic));
        refusal("create again", () -> create(topic, Map.of()));
        refusal("bad name", () -> create("no/slash", Map.of()));
        refusal("bad config", () -> create(topic + "-x", Map.of("retention.ms", "banana")));
        grow(topic, 5);
        report.put("grown", count(topic));
        refusal("shrunk", () -> grow(topic, 2));
    }

    private Object create(String name, Map<String, String> configs) throws Exception {
        return admin.createTopics(Set.of(new NewTopic(name, 3, (short) 1).configs(configs))).all().get();
    }

    private Object grow(String name, int total) throws Exception {
        return admin.createPartitions(Map.of(name, NewPartitions.increaseTo(total))).all().get();
    }

    private int count(String name) throws Exception {
        return admin.describeTopics(Set.of(name)).allTopicNames().get().get(name).partitions().size();
    }

    private String config(ConfigResource.Type type, String name, String key) throws Exception {
        ConfigResource resource = new ConfigResource(type, name);
        return admin.describeConfigs(Set.of(resource)).all().get().get(resource).get(key).value();
    }

    private void alter(String topic, List<AlterConfigOp> steps) throws Exception {
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        Map<ConfigResource, Collection<AlterConfigOp>> changes = Map.of(resource, steps);
        admin.incrementalAlterConfigs(changes).all().get();
    }

    private static AlterConfigOp step(String name, String value, AlterConfigOp.OpType type) {
        return new AlterConfigOp(new ConfigEntry(name, value), type);
    }

    private void configs(String topic) throws Exception {
        ConfigResource.Type ofTopic = ConfigResource.Type.TOPIC;
        report.put("config", config(ofTopic, topic, "retention.ms"));
        alter(topic, List.of(
                step("retention.ms", "3600000", AlterConfigOp.OpType.SET),
                step("segment.bytes", "1048576", AlterConfigOp.OpType.SET)));
        report.put("altered", List.of(
                config(ofTopic, topic, "retention.ms"), config(ofTopic, topic, "segment.bytes")));
        alter(topic, List.of(
                step("retention.ms", null, AlterConfigOp.OpType.DELETE),
                step("max.message.bytes", "2000000", AlterConfigOp.OpType.SET),
                step("cleanup.policy", "compact", AlterConfigOp.OpType.APPEND)));
        report.put("incremental", List.of(
                config(ofTopic, topic, "retention.ms"),
                config(ofTopic, topic, "segment.bytes"),
                config(ofTopic, topic, "max.message.bytes"),
                config(ofTopic, topic, "cleanup.policy")));
        report.put(
                "broker config",
                config(ConfigResource.Type.BROKER, "1", "auto.create.topics.enable"));
    }

    private long offset(TopicPartition place, OffsetSpec spec) throws Exception {
        return admin.listOffsets(Map.of(place, spec)).partitionResult(place).get().offset();
    }

    private long trim(TopicPartition place, long upto) throws Exception {
        Map<TopicPartition, RecordsToDelete> asked =
                Map.of(place, RecordsToDelete.beforeOffset(upto));
        return admin.deleteRecords(asked).lowWatermarks().get(place).get().lowWatermark();
    }

    private void data(String data, long baseMs) throws Exception {
        TopicPartition place = new TopicPartition(data, 0);
        report.put("offsets", List.of(
                offset(place, OffsetSpec.earliest()),
                offset(place, OffsetSpec.latest()),
                offset(place, OffsetSpec.maxTimestamp()),
                offset(place, OffsetSpec.forTimestamp(baseMs + 2_500))));
        report.put("trimmed", List.of(trim(place, 4), offset(place, OffsetSpec.earliest())));
        refusal("trim beyond", () -> trim(place, 1_000));
        boolean occupied = admin.describeLogDirs(Set.of(1)).allDescriptions().get().get(1).values()
                .stream()
                .anyMatch(folder -> folder.replicaInfos().containsKey(place)
                        && folder.replicaInfos().get(place).size() > 0);
        report.put("log dirs", occupied);
    }

    private boolean listed(String group) throws Exception {
        return admin.listConsumerGroups().all().get().stream()
                .anyMatch(each -> each.groupId().equals(group));
    }

    private Map<String, Long> committed(String group) throws Exception {
        Map<String, Long> found = new TreeMap<>();
        admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get()
                .forEach((place, entry) -> found.put(place.toString(), entry.offset()));
        return found;
    }

    private Object move(String group, TopicPartition place, long to) throws Exception {
        return admin.alterConsumerGroupOffsets(group, Map.of(place, new OffsetAndMetadata(to))).all().get();
    }

    private void groups(String data, String group) throws Exception {
        TopicPartition place = new TopicPartition(data, 0);
        report.put("group listed", listed(group));
        ConsumerGroupDescription found =
                admin.describeConsumerGroups(Set.of(group)).all().get().get(group);
        report.put("group", List.of(state(found), found.members().size()));
        report.put("group offsets", committed(group));
        move(group, place, 2);
        report.put("group moved", committed(group));
        admin.deleteConsumerGroupOffsets(group, Set.of(place)).all().get();
        report.put("group forgotten", committed(group));
        move(group, place, 2);
        admin.deleteConsumerGroups(Set.of(group)).all().get();
        report.put("group deleted", !listed(group));
        refusal("delete group again", () -> admin.deleteConsumerGroups(Set.of(group)).all().get());
    }

    // The method has changed its name between 3.9 and 4.3.
    private static String state(ConsumerGroupDescription found) throws Exception {
        for (Method method : ConsumerGroupDescription.class.getMethods()) {
            if (method.getName().equals("groupState") || method.getName().equals("state")) {
                return String.valueOf(method.invoke(found));
            }
        }
        throw new NoSuchMethodException("the state of a group");
    }
}
