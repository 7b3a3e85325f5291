import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.StringJoiner;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.CompressionType;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MemoryRecordsBuilder;
import org.apache.kafka.common.record.internal.MutableRecordBatch;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.record.internal.RecordBatch;

/**
 * Arguments: input, output. Prints every record of every batch in the input; then writes the records
 * of the first batch to the output, as one batch for each compression in the order of their ids.
 */
public final class RecordOracle {
    public static void main(String[] args) throws Exception {
        ByteBuffer input = ByteBuffer.wrap(Files.readAllBytes(Path.of(args[0])));
        List<Record> first = null;
        for (MutableRecordBatch batch : MemoryRecords.readableRecords(input).batches()) {
            batch.ensureValid();
            List<Record> records = new ArrayList<>();
            for (Record record : batch) {
                record.ensureValid();
                records.add(record);
                System.out.println(batch.compressionType().name + " " + batch.producerId() + " "
                    + batch.producerEpoch() + " " + batch.baseSequence() + " "
                    + batch.partitionLeaderEpoch() + " " + batch.isTransactional() + " " + show(record));
            }
            first = first == null ? records : first;
        }
        ByteBuffer output = ByteBuffer.allocate(64 << 20);
        for (int id = 0; id < 5; id++) {
            MemoryRecordsBuilder builder = MemoryRecords.builder(output, RecordBatch.MAGIC_VALUE_V2,
                Compression.of(CompressionType.forId(id)).build(), TimestampType.CREATE_TIME,
                0L, RecordBatch.NO_TIMESTAMP, 77L, (short) 3, 12, false, false, 5);
            for (Record record : first) {
                builder.append(record.timestamp(), record.key(), record.value(), record.headers());
            }
            builder.build();
            output = builder.buffer();
        }
        byte[] written = new byte[output.position()];
        output.flip().get(written);
        Files.write(Path.of(args[1]), written);
    }

    private static String show(Record record) {
        StringJoiner headers = new StringJoiner(",", "[", "]");
        for (Header header : record.headers()) {
            headers.add(HexFormat.of().formatHex(header.key().getBytes(StandardCharsets.UTF_8)) + "="
                + (header.value() == null ? "null" : HexFormat.of().formatHex(header.value())));
        }
        return record.offset() + " " + record.timestamp() + " " + hex(record.key()) + " "
            + hex(record.value()) + " " + headers;
    }

    private static String hex(ByteBuffer bytes) {
        if (bytes == null) {
            return "null";
        }
        byte[] copy = new byte[bytes.remaining()];
        bytes.get(copy);
        return HexFormat.of().formatHex(copy);
    }
}
