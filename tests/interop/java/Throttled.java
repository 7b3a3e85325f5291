import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.kafka.common.Metric;
import org.apache.kafka.common.MetricName;

/** What the broker has told the last producer and the last consumer to wait, at most. */
final class Throttled {
    private static final Map<String, Double> MOST_MS = new LinkedHashMap<>();

    private Throttled() {}

    static void note(String kind, Map<MetricName, ? extends Metric> metrics) {
        metrics.forEach((name, metric) -> {
            if (name.name().equals(kind + "-throttle-time-max")) {
                MOST_MS.put(kind, ((Number) metric.metricValue()).doubleValue());
            }
        });
    }

    static Object tell() {
        return MOST_MS;
    }
}
