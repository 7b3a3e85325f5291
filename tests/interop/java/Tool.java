import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.InputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.kafka.common.utils.Exit;

/** One of Kafka's command-line tools, run as it is, without the cost of a Java of its own. */
final class Tool {
    private Tool() {}

    /** What a tool does instead of ending this process. */
    private static final class Ended extends Error {
        Ended() {
            super("the tool has ended", null, false, false);
        }
    }

    static Object run(Call call) throws Exception {
        PrintStream out = System.out;
        PrintStream err = System.err;
        InputStream in = System.in;
        ByteArrayOutputStream output = new ByteArrayOutputStream();
        ByteArrayOutputStream errors = new ByteArrayOutputStream();
        // The first status counts: some tools take the end itself for an error and end again.
        AtomicReference<Integer> status = new AtomicReference<>();
        Exit.Procedure end = (code, message) -> {
            status.compareAndSet(null, code);
            throw new Ended();
        };
        Exit.setExitProcedure(end);
        Exit.setHaltProcedure(end);
        System.setOut(new PrintStream(output, true, StandardCharsets.UTF_8));
        System.setErr(new PrintStream(errors, true, StandardCharsets.UTF_8));
        System.setIn(new ByteArrayInputStream(
                call.text("stdin", "").getBytes(StandardCharsets.UTF_8)));
        try {
            Class.forName(call.text("class"))
                    .getMethod("main", String[].class)
                    .invoke(null, (Object) call.texts("args").toArray(new String[0]));
        } catch (InvocationTargetException thrown) {
            if (!(thrown.getCause() instanceof Ended)) {
                throw thrown;
            }
        } finally {
            System.setOut(out);
            System.setErr(err);
            System.setIn(in);
            Exit.resetExitProcedure();
            Exit.resetHaltProcedure();
        }
        return Map.of(
                "status", status.get() == null ? 0 : status.get(),
                "out", output.toString(StandardCharsets.UTF_8),
                "err", errors.toString(StandardCharsets.UTF_8));
    }
}
