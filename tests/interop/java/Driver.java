import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.LinkedBlockingQueue;
import org.apache.kafka.common.errors.ApiException;
import org.apache.kafka.common.protocol.Errors;

/** The Java clients, driven by the tests: JSON lines, as in tests/interop/programs/lines.py. */
public final class Driver {
    static final long PATIENCE_MS = 40_000;

    private static final ObjectMapper JSON = new ObjectMapper();
    // Tools write to System.out, which is then somewhere else; answers always go here.
    private static final PrintStream OUT =
            new PrintStream(new FileOutputStream(FileDescriptor.out), false, StandardCharsets.UTF_8);
    private static final BlockingQueue<String> LINES = new LinkedBlockingQueue<>();
    private static final String END = "";

    private Driver() {}

    public static void main(String[] unused) throws Exception {
        BufferedReader in =
                new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        Thread reader = new Thread(() -> in.lines().forEach(LINES::add));
        reader.setDaemon(true);
        Thread watcher = new Thread(() -> {
            try {
                reader.join();
            } catch (InterruptedException error) {
                Thread.currentThread().interrupt();
            }
            LINES.add(END);
        });
        watcher.setDaemon(true);
        reader.start();
        watcher.start();
        for (String line = LINES.take(); !line.equals(END); line = LINES.take()) {
            answer(new Call(JSON.readValue(line, Map.class)));
        }
        System.exit(0);
    }

    /** Whether the test has sent another line, or is gone. */
    static boolean toldToClose() {
        return !LINES.isEmpty();
    }

    static synchronized void say(Map<String, ?> answer) {
        try {
            OUT.println(JSON.writeValueAsString(answer));
            OUT.flush();
        } catch (Exception error) {
            throw new IllegalStateException(error);
        }
    }

    static void event(String name, String field, Object value) {
        Map<String, Object> fields = new LinkedHashMap<>();
        fields.put("event", name);
        if (field != null) {
            fields.put(field, value);
        }
        say(fields);
    }

    private static void answer(Call call) {
        Map<String, Object> answer = new LinkedHashMap<>();
        try {
            answer.put("result", operation(call));
        } catch (Throwable thrown) {
            Throwable error = unwrapped(thrown);
            answer.clear();
            answer.put("error", error.getClass().getSimpleName());
            answer.put("code", codeOf(error));
            answer.put("message", String.valueOf(error.getMessage()));
            error.printStackTrace();
        }
        say(answer);
    }

    private static Object operation(Call call) throws Exception {
        switch (call.text("op")) {
            case "produce":
                return Sending.produce(call);
            case "consume":
                return Reading.consume(call);
            case "tail":
                return Reading.tail(call);
            case "offsets":
                return Reading.offsets(call);
            case "throttled":
                return Throttled.tell();
            case "member":
                return Member.run(call);
            case "admin":
                return AdminTour.run(call);
            case "transaction":
                return Transacting.step(call);
            case "relay":
                return Transacting.relay(call);
            case "tool":
                return Tool.run(call);
            case "close":
                return null;
            default:
                throw new IllegalArgumentException(call.text("op"));
        }
    }

    static Throwable unwrapped(Throwable error) {
        boolean wraps = error instanceof ExecutionException || error instanceof CompletionException;
        return wraps && error.getCause() != null ? unwrapped(error.getCause()) : error;
    }

    /** Kafka's number of an error, if it has one. */
    static Integer codeOf(Throwable error) {
        if (!(error instanceof ApiException)) {
            return null;
        }
        Errors known = Errors.forException(error);
        return known == Errors.UNKNOWN_SERVER_ERROR ? null : Integer.valueOf(known.code());
    }
}
