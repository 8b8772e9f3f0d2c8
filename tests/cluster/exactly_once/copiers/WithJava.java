import java.io.FileReader;
import java.io.IOException;
import java.io.Reader;
import java.io.UncheckedIOException;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.InvalidProducerEpochException;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Copies a topic, each batch in one transaction, as KafkaProducer documents it: BOOTSTRAP SOURCE
 * TARGET; the target's name is the group's and the transactional id, too. Ends with 3 when another
 * producer has taken the transactional id over.
 */
public class WithJava {
    static final int FENCED = 3;

    public static void main(String[] words) {
        String source = words[1];
        String target = words[2];
        try (KafkaProducer<byte[], byte[]> producer = producer(words[0], target);
             KafkaConsumer<byte[], byte[]> consumer = consumer(words[0], target)) {
            producer.initTransactions();
            consumer.subscribe(List.of(source));
            while (true) {
                ConsumerRecords<byte[], byte[]> records = consumer.poll(Duration.ofSeconds(1));
                if (records.isEmpty()) {
                    continue;
                }
                try {
                    producer.beginTransaction();
                    Map<TopicPartition, OffsetAndMetadata> positions = new HashMap<>();
                    for (ConsumerRecord<byte[], byte[]> record : records) {
                        producer.send(new ProducerRecord<>(
                            target, record.partition(), null, record.value()));
                        positions.put(
                            new TopicPartition(source, record.partition()),
                            new OffsetAndMetadata(record.offset() + 1));
                    }
                    producer.sendOffsetsToTransaction(positions, consumer.groupMetadata());
                    producer.commitTransaction();
                } catch (ProducerFencedException | InvalidProducerEpochException fenced) {
                    fenced.printStackTrace();
                    Runtime.getRuntime().halt(FENCED);
                } catch (KafkaException error) {
                    error.printStackTrace();
                    producer.abortTransaction();
                    goBack(consumer);
                }
            }
        }
    }

    /** Reads on where the last committed transaction ends. */
    static void goBack(KafkaConsumer<byte[], byte[]> consumer) {
        consumer.committed(consumer.assignment()).forEach((at, committed) ->
            consumer.seek(at, committed == null ? 0 : committed.offset()));
    }

    /** How to log in, where a file of settings is named. */
    static Properties login() {
        Properties settings = new Properties();
        String file = System.getProperty("login");
        try (Reader found = file == null ? Reader.nullReader() : new FileReader(file)) {
            settings.load(found);
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
        return settings;
    }

    static KafkaProducer<byte[], byte[]> producer(String bootstrap, String name) {
        Properties settings = login();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("transactional.id", name);
        settings.put("transaction.timeout.ms", "30000");
        return new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer());
    }

    static KafkaConsumer<byte[], byte[]> consumer(String bootstrap, String name) {
        Properties settings = login();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("group.id", name);
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", "false");
        settings.put("isolation.level", "read_committed");
        settings.put("max.poll.records", "50");
        settings.put("session.timeout.ms", "6000");
        settings.put("heartbeat.interval.ms", "1000");
        return new KafkaConsumer<>(
            settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }
}
