import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StoreQueryParameters;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.errors.InvalidStateStoreException;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.processor.StateRestoreListener;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.QueryableStoreTypes;
import org.apache.kafka.streams.state.ReadOnlyKeyValueStore;
import org.apache.kafka.streams.state.Stores;

/**
 * Counts the records of each key of a topic in a state store, until it has counted so many; prints
 * how many records of the changelog it restored, and every count. The store is in memory: it is
 * restored whenever the application starts.
 */
public class StateStore {
    static final String STORE = "counts";
    /** Small batches in small segments: the changelog is compacted while it is written. */
    static final Map<String, String> CHANGELOG = Map.of(
        "index.interval.bytes", "0",
        "segment.index.bytes", "400",
        "min.cleanable.dirty.ratio", "0.01");

    public static void main(String[] words) throws Exception {
        Properties settings = login();
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, "counter");
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, words[0]);
        settings.put(StreamsConfig.STATE_DIR_CONFIG, words[3]);
        settings.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, "200");
        settings.put(StreamsConfig.consumerPrefix("auto.offset.reset"), "earliest");
        settings.put(StreamsConfig.producerPrefix("batch.size"), "1000");
        settings.put(StreamsConfig.producerPrefix("linger.ms"), "0");
        long expected = Long.parseLong(words[2]);

        StreamsBuilder builder = new StreamsBuilder();
        builder.stream(words[1], Consumed.with(Serdes.String(), Serdes.String()))
            .groupByKey(Grouped.with(Serdes.String(), Serdes.String()))
            .count(Materialized.<String, Long>as(Stores.inMemoryKeyValueStore(STORE))
                .withKeySerde(Serdes.String())
                .withValueSerde(Serdes.Long())
                .withLoggingEnabled(CHANGELOG)
                .withCachingDisabled());

        AtomicLong restored = new AtomicLong();
        try (KafkaStreams streams = new KafkaStreams(builder.build(), settings)) {
            streams.setGlobalStateRestoreListener(new Restored(restored));
            streams.start();
            Map<String, Long> counts = counts(streams);
            while (counts.values().stream().mapToLong(Long::longValue).sum() < expected) {
                Thread.sleep(100);
                counts = counts(streams);
            }
            System.out.println("restored " + restored.get());
            counts.forEach((key, count) -> System.out.println("count " + key + " " + count));
        }
    }

    /** How to log in, where a file of settings is named. */
    static Properties login() throws IOException {
        Properties settings = new Properties();
        if (System.getProperty("login") != null) {
            settings.load(Files.newBufferedReader(Path.of(System.getProperty("login"))));
        }
        return settings;
    }

    static Map<String, Long> counts(KafkaStreams streams) {
        Map<String, Long> found = new TreeMap<>();
        try {
            ReadOnlyKeyValueStore<String, Long> store = streams.store(
                StoreQueryParameters.fromNameAndType(STORE, QueryableStoreTypes.keyValueStore()));
            try (KeyValueIterator<String, Long> all = store.all()) {
                while (all.hasNext()) {
                    KeyValue<String, Long> one = all.next();
                    found.put(one.key, one.value);
                }
            }
        } catch (InvalidStateStoreException notYet) {
            found.clear();
        }
        return found;
    }

    record Restored(AtomicLong count) implements StateRestoreListener {
        @Override
        public void onRestoreStart(TopicPartition at, String store, long start, long end) {}

        @Override
        public void onBatchRestored(TopicPartition at, String store, long end, long restored) {}

        @Override
        public void onRestoreEnd(TopicPartition at, String store, long total) {
            count.addAndGet(total);
        }
    }
}
