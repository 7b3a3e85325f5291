import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.common.metrics.MetricConfig;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.metrics.Quota;
import org.apache.kafka.common.metrics.QuotaViolationException;
import org.apache.kafka.common.metrics.Sensor;
import org.apache.kafka.common.metrics.stats.Rate;
import org.apache.kafka.common.metrics.stats.TokenBucket;
import org.apache.kafka.server.quota.ControllerMutationQuotaManager;
import org.apache.kafka.server.quota.QuotaUtils;

/**
 * Kafka's own measurements. Each line is one client: "rate|bucket windows window_ms limit", then
 * "time:amount" for everything it does. The answer is a line of throttle times.
 */
public final class QuotaOracle {
    private QuotaOracle() {
    }

    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(
                new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            System.out.println(answer(line.split(" ")));
            System.out.flush();
        }
    }

    private static String answer(String[] words) {
        boolean isRate = words[0].equals("rate");
        MetricConfig config = new MetricConfig()
                .samples(Integer.parseInt(words[1]))
                .timeWindow(Long.parseLong(words[2]), TimeUnit.MILLISECONDS)
                .quota(Quota.upperBound(Double.parseDouble(words[3])));
        StringBuilder told = new StringBuilder();
        try (Metrics metrics = new Metrics()) {
            Sensor sensor = metrics.sensor("client");
            sensor.add(metrics.metricName("used", "clients"),
                    isRate ? new Rate() : new TokenBucket(), config);
            for (int index = 4; index < words.length; index++) {
                String[] parts = words[index].split(":");
                long timeMs = Long.parseLong(parts[0]);
                told.append(' ').append(use(sensor, Double.parseDouble(parts[1]), timeMs, isRate));
            }
        }
        return told.toString();
    }

    private static long use(Sensor sensor, double amount, long timeMs, boolean isRate) {
        try {
            sensor.record(amount, timeMs, true);
            return 0;
        } catch (QuotaViolationException exceeded) {
            return isRate
                    ? QuotaUtils.throttleTime(exceeded, timeMs)
                    : ControllerMutationQuotaManager.throttleTimeMs(exceeded);
        }
    }
}
