import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.state.Stores;

/**
 * Counts words exactly once: BOOTSTRAP SOURCE TARGET. A word is the last digit of a record; each
 * record makes one more in the target, with the word and how many there are by now. The store is
 * in memory: it is restored from its changelog whenever the application starts.
 */
public class WordCount {
    public static void main(String[] words) throws IOException {
        Properties settings = login();
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, words[2]);
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, words[0]);
        settings.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
        settings.put(StreamsConfig.STATE_DIR_CONFIG, System.getProperty("state"));
        settings.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, "0");
        settings.put(StreamsConfig.consumerPrefix("auto.offset.reset"), "earliest");
        settings.put(StreamsConfig.consumerPrefix("session.timeout.ms"), "6000");
        settings.put(StreamsConfig.consumerPrefix("heartbeat.interval.ms"), "1000");

        StreamsBuilder builder = new StreamsBuilder();
        builder.stream(words[1], Consumed.with(Serdes.ByteArray(), Serdes.String()))
            .groupBy(
                (key, value) -> value.substring(value.length() - 1),
                Grouped.with(Serdes.String(), Serdes.String()))
            .count(Materialized.<String, Long>as(Stores.inMemoryKeyValueStore("counts"))
                .withKeySerde(Serdes.String())
                .withValueSerde(Serdes.Long()))
            .toStream()
            .mapValues((word, count) -> word + " " + count)
            .to(words[2], Produced.with(Serdes.String(), Serdes.String()));

        KafkaStreams streams = new KafkaStreams(builder.build(), settings);
        streams.setUncaughtExceptionHandler(error -> {
            error.printStackTrace();
            return StreamThreadExceptionResponse.REPLACE_THREAD;
        });
        streams.start();
    }

    /** How to log in, where a file of settings is named. */
    static Properties login() throws IOException {
        Properties settings = new Properties();
        if (System.getProperty("login") != null) {
            settings.load(Files.newBufferedReader(Path.of(System.getProperty("login"))));
        }
        return settings;
    }
}
