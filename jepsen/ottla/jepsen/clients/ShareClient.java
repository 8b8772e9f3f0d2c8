import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.Arrays;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.StringJoiner;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicIdPartition;

/**
 * A share consumer that follows commands on its input, and answers each with one line.
 *
 * <p>{@code ShareClient BOOTSTRAP GROUP RECORDS}, then {@code join TOPIC…}, {@code take MS}, {@code
 * acknowledge MS TOPIC:PARTITION:OFFSET:TYPE…} and {@code leave}. An answer is {@code ok} with
 * words, or {@code error} with the name of the exception.
 */
public class ShareClient {
    static KafkaShareConsumer<String, String> consumer = null;

    public static void main(String[] words) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", words[0]);
        settings.put("group.id", words[1]);
        settings.put("max.poll.records", words[2]);
        settings.put("share.acknowledgement.mode", "explicit");
        settings.put("share.acquire.mode", "record_limit");
        settings.put("request.timeout.ms", "4000");
        settings.put("retry.backoff.ms", "50");
        settings.put("key.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        settings.put(
            "value.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        String line;
        while ((line = input.readLine()) != null) {
            try {
                System.out.println("ok " + answer(settings, line.split(" ")));
            } catch (KafkaException | IllegalStateException error) {
                System.out.println("error " + error.getClass().getSimpleName());
            }
        }
        Runtime.getRuntime().halt(0);
    }

    static String answer(Properties settings, String[] words) {
        switch (words[0]) {
            case "join":
                close();
                consumer = new KafkaShareConsumer<>(settings);
                consumer.subscribe(Arrays.asList(words).subList(1, words.length));
                return "";
            case "take":
                return take(Duration.ofMillis(Long.parseLong(words[1])));
            case "acknowledge":
                return acknowledge(words);
            default:
                close();
                return "";
        }
    }

    static String take(Duration timeout) {
        StringJoiner found = new StringJoiner(" ");
        for (ConsumerRecord<String, String> one : consumer.poll(timeout)) {
            found.add(one.topic() + ":" + one.partition() + ":" + one.offset() + ":" + one.value()
                + ":" + one.deliveryCount().orElse((short) 0));
        }
        return found.toString();
    }

    /** Returns the partitions, each with {@code ok} or the name of the exception. */
    static String acknowledge(String[] words) {
        for (String word : Arrays.asList(words).subList(2, words.length)) {
            String[] parts = word.split(":");
            consumer.acknowledge(parts[0], Integer.parseInt(parts[1]), Long.parseLong(parts[2]),
                AcknowledgeType.valueOf(parts[3].toUpperCase()));
        }
        StringJoiner found = new StringJoiner(" ");
        Map<TopicIdPartition, Optional<KafkaException>> results =
            consumer.commitSync(Duration.ofMillis(Long.parseLong(words[1])));
        results.forEach((at, error) -> {
            String outcome = error.map(one -> one.getClass().getSimpleName()).orElse("ok");
            found.add(at.topic() + ":" + at.partition() + ":" + outcome);
        });
        return found.toString();
    }

    static void close() {
        if (consumer != null) {
            consumer.close(Duration.ofSeconds(2));
            consumer = null;
        }
    }
}
