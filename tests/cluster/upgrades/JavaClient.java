import java.io.FileReader;
import java.io.IOException;
import java.io.Reader;
import java.io.UncheckedIOException;
import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.errors.ApiException;
import org.apache.kafka.common.errors.InvalidProducerEpochException;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.errors.TimeoutException;

/**
 * A client that prints a line for each event, until its input ends.
 *
 * <p>{@code write BOOTSTRAP TOPIC PARTITIONS COMPACTED KEYS} writes 0, 1, 2 … to each partition of a
 * topic, one number a transaction, and each number also to a compacted topic, under its remainder
 * as the key. {@code read BOOTSTRAP GROUP PROTOCOL TOPIC…} is a member of a group. {@code share
 * BOOTSTRAP GROUP COUNT TOPIC…} is a member of a share group, which ends when it has accepted a
 * number of records.
 */
public class JavaClient {
    static volatile boolean isStopping = false;

    public static void main(String[] words) {
        Thread input = new Thread(JavaClient::waitForEnd);
        input.setDaemon(true);
        input.start();
        Properties settings = login();
        settings.put("bootstrap.servers", words[1]);
        if (words[0].equals("write")) {
            write(settings, words[2], Integer.parseInt(words[3]), words[4],
                Integer.parseInt(words[5]));
        } else if (words[0].equals("share")) {
            share(settings, words[2], Integer.parseInt(words[3]),
                Arrays.asList(words).subList(4, words.length));
        } else {
            read(settings, words[2], words[3], Arrays.asList(words).subList(4, words.length));
        }
    }

    static void waitForEnd() {
        try {
            while (System.in.read() >= 0) {
                continue;
            }
        } catch (IOException closed) {
            // It ended.
        }
        isStopping = true;
    }

    static void write(
            Properties settings, String topic, int partitions, String compacted, int keys) {
        settings.put("transactional.id", topic);
        settings.put("key.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        settings.put("value.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(settings)) {
            retried(producer::initTransactions);
            int number = 0;
            while (!isStopping) {
                String value = Integer.toString(number);
                String key = Integer.toString(number % keys);
                try {
                    producer.beginTransaction();
                    for (int partition = 0; partition < partitions; partition++) {
                        producer.send(new ProducerRecord<>(topic, partition, null, value));
                    }
                    producer.send(new ProducerRecord<>(compacted, 0, key, value));
                    retried(producer::commitTransaction);
                    System.out.println("committed");
                    number++;
                } catch (ProducerFencedException | InvalidProducerEpochException fenced) {
                    throw fenced;
                } catch (KafkaException error) {
                    System.out.println("error " + nameOf(error));
                    retried(producer::abortTransaction);
                }
            }
        }
    }

    static void retried(Runnable call) {
        while (true) {
            try {
                call.run();
                return;
            } catch (TimeoutException late) {
                System.out.println("error " + nameOf(late));
            }
        }
    }

    static String nameOf(KafkaException error) {
        Throwable cause = error instanceof ApiException || error.getCause() == null
            ? error : error.getCause();
        return cause.getClass().getSimpleName();
    }

    static void read(
            Properties settings, String group, String protocol, List<String> topics) {
        settings.put("group.id", group);
        settings.put("group.protocol", protocol);
        settings.put("auto.offset.reset", "earliest");
        settings.put("isolation.level", "read_committed");
        settings.put("key.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        settings.put(
            "value.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(settings)) {
            consumer.subscribe(topics);
            while (!isStopping) {
                for (ConsumerRecord<String, String> one : consumer.poll(Duration.ofMillis(200))) {
                    System.out.println("read " + one.topic() + " " + one.partition() + " "
                        + one.value());
                }
            }
        }
    }

    static void share(Properties settings, String group, int count, List<String> topics) {
        settings.put("group.id", group);
        settings.put("share.acquire.mode", "record_limit");
        settings.put("max.poll.records", "1");
        settings.put("key.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        settings.put(
            "value.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        try (KafkaShareConsumer<String, String> consumer = new KafkaShareConsumer<>(settings)) {
            consumer.subscribe(topics);
            int accepted = 0;
            while (accepted < count) {
                for (ConsumerRecord<String, String> one : consumer.poll(Duration.ofMillis(200))) {
                    // Only confirmed acknowledgements are printed.
                    consumer.commitSync().values().forEach(error -> error.ifPresent(found -> {
                        throw found;
                    }));
                    System.out.println("accepted " + one.value());
                    accepted++;
                }
            }
        }
    }

    /** Returns the settings of a login, if a file with them is named. */
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
}
