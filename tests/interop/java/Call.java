import java.util.Base64;
import java.util.List;
import java.util.Map;

/** One call of the tests, and how bytes travel in JSON. */
final class Call {
    private final Map<String, Object> fields;

    @SuppressWarnings("unchecked")
    Call(Map<?, ?> fields) {
        this.fields = (Map<String, Object>) fields;
    }

    boolean has(String name) {
        return fields.get(name) != null;
    }

    String text(String name) {
        return (String) fields.get(name);
    }

    String text(String name, String otherwise) {
        return has(name) ? text(name) : otherwise;
    }

    long number(String name) {
        return ((Number) fields.get(name)).longValue();
    }

    boolean flag(String name) {
        return Boolean.TRUE.equals(fields.get(name));
    }

    @SuppressWarnings("unchecked")
    List<String> texts(String name) {
        return (List<String>) fields.get(name);
    }

    @SuppressWarnings("unchecked")
    List<Map<String, Object>> objects(String name) {
        return (List<Map<String, Object>>) fields.get(name);
    }

    @SuppressWarnings("unchecked")
    Map<String, Object> object(String name) {
        return has(name) ? (Map<String, Object>) fields.get(name) : Map.of();
    }

    static byte[] unpacked(Object text) {
        return text == null ? null : Base64.getDecoder().decode((String) text);
    }

    static String packed(byte[] bytes) {
        return bytes == null ? null : Base64.getEncoder().encodeToString(bytes);
    }
}
