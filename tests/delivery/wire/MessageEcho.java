import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.util.HexFormat;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.MessageUtil;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.Readable;

/** Reads a message with Kafka's own class and writes it again: "class version hex" per line. */
public class MessageEcho {
    public static void main(String[] arguments) throws Exception {
        HexFormat hex = HexFormat.of();
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split(" ", -1);
            short version = Short.parseShort(words[1]);
            ByteBuffer bytes = ByteBuffer.wrap(hex.parseHex(words[2]));
            String answer;
            try {
                Message message = (Message) Class.forName(words[0])
                    .getConstructor(Readable.class, short.class)
                    .newInstance(new ByteBufferAccessor(bytes), version);
                ByteBuffer again = MessageUtil.toByteBufferAccessor(message, version).buffer();
                byte[] written = new byte[again.remaining()];
                again.get(written);
                answer = bytes.remaining() + " " + hex.formatHex(written);
            } catch (Exception error) {
                Throwable cause = error.getCause() == null ? error : error.getCause();
                answer = "error " + cause.toString().replace('\n', ' ');
            }
            System.out.println(answer);
            System.out.flush();
        }
    }
}
