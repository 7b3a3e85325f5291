// Writes keys as Kafka Connect's JsonConverter does, which is what Debezium uses. A line of input is
// a number and a text in hex; a line of output is the keys of both in hex: the text, the number, an
// object of the text, an object of both, each without a schema and with one.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.data.SchemaBuilder;
import org.apache.kafka.connect.data.Struct;
import org.apache.kafka.connect.json.JsonConverter;

public class ConnectKeys {
    private static final Schema ONE = SchemaBuilder.struct().field("id", Schema.STRING_SCHEMA).build();
    private static final Schema BOTH =
        SchemaBuilder.struct()
            .field("number", Schema.INT64_SCHEMA)
            .field("id", Schema.STRING_SCHEMA)
            .build();

    public static void main(String[] arguments) throws Exception {
        List<JsonConverter> converters = List.of(converter("false"), converter("true"));
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split(" ", 2);
            long number = Long.parseLong(words[0]);
            String text = new String(HexFormat.of().parseHex(words[1]), StandardCharsets.UTF_8);
            StringBuilder told = new StringBuilder();
            for (JsonConverter each : converters) {
                add(told, each, Schema.STRING_SCHEMA, text);
                add(told, each, Schema.INT64_SCHEMA, number);
                add(told, each, ONE, new Struct(ONE).put("id", text));
                add(told, each, BOTH, new Struct(BOTH).put("number", number).put("id", text));
            }
            System.out.println(told.toString().trim());
        }
    }

    private static JsonConverter converter(String schemas) {
        JsonConverter made = new JsonConverter();
        made.configure(Map.of("schemas.enable", schemas), true);
        return made;
    }

    private static void add(StringBuilder told, JsonConverter by, Schema schema, Object value) {
        told.append(HexFormat.of().formatHex(by.fromConnectData("t", schema, value))).append(' ');
    }
}
