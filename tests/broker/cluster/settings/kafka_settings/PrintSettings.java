import java.io.IOException;
import java.io.PrintStream;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Comparator;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Stream;

import kafka.server.KafkaConfig;
import kafka.server.KafkaRaftServer;
import kafka.tools.StorageTool;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.AlterConfigsOptions;
import org.apache.kafka.clients.admin.AlterConfigsResult;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.DescribeConfigsOptions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.utils.internals.AppInfoParser;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.coordinator.group.GroupConfig;
import org.apache.kafka.server.config.DynamicConfig;
import org.apache.kafka.server.metrics.ClientMetricsConfigs;
import org.apache.kafka.storage.internals.log.LogConfig;

/**
 * Prints every setting of a Kafka release as JSON: type, default, synonyms, whether it is read-only,
 * and the answers of a running broker to values at and outside its bounds.
 *
 * A broker that is a controller too is formatted and started in a directory of its own on the
 * loopback address.  Nothing is changed there: every value is sent with validate_only.  A broker's
 * setting is also tried in a file, of a broker and of a controller.
 *
 * Usage: java -cp 'JARS/*' PrintSettings.java
 */
public class PrintSettings {
    static final String NODE = "1";
    static final String TOPIC = "topic";
    static final String NAME = "name";
    static final Pattern NUMBER = Pattern.compile("-?\\d+(\\.\\d+)?(E-?\\d+)?");
    static final Pattern WORD = Pattern.compile("[A-Za-z][A-Za-z0-9_.-]*");

    public static void main(String[] arguments) throws Exception {
        // The JSON alone goes to standard output; logs go where errors go.
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        System.setOut(System.err);
        Path directory = Files.createTempDirectory("print-settings");
        int[] ports = freePorts();
        Properties node = node(directory, ports);
        Path file = directory.resolve("server.properties");
        try (var writer = Files.newBufferedWriter(file)) {
            node.store(writer, null);
        }
        String[] format = {
            "format", "--config", file.toString(), "--cluster-id", "AAAAAAAAAAAAAAAAAAAAAA", "--standalone"
        };
        if (StorageTool.execute(format, System.err) != 0) {
            throw new IllegalStateException("the directory could not be formatted");
        }
        KafkaRaftServer server = new KafkaRaftServer(KafkaConfig.fromProps(node), Time.SYSTEM);
        server.startup();
        Properties client = new Properties();
        client.put("bootstrap.servers", "127.0.0.1:" + ports[0]);
        try (Admin admin = Admin.create(client)) {
            print(admin, out);
        }
        out.flush();
        server.shutdown();
        try (Stream<Path> paths = Files.walk(directory)) {
            for (Path path : paths.sorted(Comparator.reverseOrder()).toList()) {
                Files.delete(path);
            }
        }
        System.exit(0);
    }

    static int[] freePorts() throws IOException {
        InetAddress loopback = InetAddress.getLoopbackAddress();
        try (var one = new ServerSocket(0, 1, loopback); var two = new ServerSocket(0, 1, loopback)) {
            return new int[] {one.getLocalPort(), two.getLocalPort()};
        }
    }

    static Properties node(Path directory, int[] ports) {
        Properties node = new Properties();
        node.put("process.roles", "broker,controller");
        node.put("node.id", NODE);
        node.put("log.dirs", directory.resolve("data").toString());
        node.put("listeners", "PLAINTEXT://127.0.0.1:" + ports[0] + ",CONTROLLER://127.0.0.1:" + ports[1]);
        node.put("controller.listener.names", "CONTROLLER");
        node.put("controller.quorum.bootstrap.servers", "127.0.0.1:" + ports[1]);
        node.put("offsets.topic.replication.factor", "1");
        return node;
    }

    /** Returns the smallest file of a broker. */
    static Properties brokerFile() {
        Properties file = new Properties();
        file.put("process.roles", "broker");
        file.put("node.id", NODE);
        file.put("log.dirs", "/data");
        file.put("listeners", "PLAINTEXT://127.0.0.1:9092");
        file.put("controller.listener.names", "CONTROLLER");
        file.put("controller.quorum.voters", "3@127.0.0.1:9093");
        return file;
    }

    /** Returns the smallest file of a controller. */
    static Properties controllerFile() {
        Properties file = new Properties();
        file.put("process.roles", "controller");
        file.put("node.id", "3");
        file.put("log.dirs", "/data");
        file.put("listeners", "CONTROLLER://127.0.0.1:9093");
        file.put("controller.listener.names", "CONTROLLER");
        file.put("controller.quorum.voters", "3@127.0.0.1:9093");
        return file;
    }

    static void print(Admin admin, PrintStream out) throws Exception {
        admin.createTopics(List.of(new NewTopic(TOPIC, 1, (short) 1))).all().get();
        ConfigResource topic = new ConfigResource(ConfigResource.Type.TOPIC, TOPIC);
        ConfigResource broker = new ConfigResource(ConfigResource.Type.BROKER, NODE);
        ConfigResource all = new ConfigResource(ConfigResource.Type.BROKER, "");
        ConfigResource group = new ConfigResource(ConfigResource.Type.GROUP, NAME);
        ConfigResource metrics = new ConfigResource(ConfigResource.Type.CLIENT_METRICS, NAME);
        out.println("{\"release\":" + quoted(AppInfoParser.getVersion()) + ",");
        List<String> common = new ArrayList<>();
        for (ConfigDef.Type type : ConfigDef.Type.values()) {
            common.add(quoted(type.name()) + ":" + list(probes(type, "")));
        }
        out.println("\"values\":{" + String.join(",\n", common) + "},");
        ConfigDef brokers = new ConfigDef(KafkaConfig.configDef());
        DynamicConfig.Broker.configKeys().values().forEach(key -> {
            if (!brokers.names().contains(key.name)) {
                brokers.define(key);
            }
        });
        section(admin, out, "broker", brokers, List.of(broker, all), true);
        out.println(",");
        section(admin, out, "topic", LogConfig.configDefCopy(), List.of(topic), false);
        out.println(",");
        section(admin, out, "group", GroupConfig.CONFIG_DEF, List.of(group), false);
        out.println(",");
        section(admin, out, "client-metrics", ClientMetricsConfigs.configDef(), List.of(metrics), false);
        out.println("}");
    }

    static void section(
            Admin admin, PrintStream out, String title, ConfigDef definitions,
            List<ConfigResource> resources, boolean hasFiles) throws Exception {
        var options = new DescribeConfigsOptions().includeSynonyms(true);
        Map<String, ConfigEntry> described = new HashMap<>();
        ConfigResource first = resources.get(0);
        for (ConfigEntry entry : admin.describeConfigs(List.of(first), options).all().get().get(first).entries()) {
            described.put(entry.name(), entry);
        }
        out.println(quoted(title) + ":{");
        boolean isFirst = true;
        for (var key : new TreeMap<>(definitions.configKeys()).values()) {
            if (!isFirst) {
                out.println(",");
            }
            isFirst = false;
            List<String> parts = new ArrayList<>();
            parts.add("\"type\":" + quoted(key.type.name()));
            parts.add("\"default\":" + default_(key));
            if (key.validator != null) {
                parts.add("\"allowed\":" + quoted(key.validator.toString()));
            }
            ConfigEntry entry = described.get(key.name);
            if (entry != null) {
                parts.add("\"read_only\":" + entry.isReadOnly());
                parts.add("\"sensitive\":" + entry.isSensitive());
                List<String> synonyms = new ArrayList<>();
                for (var synonym : entry.synonyms()) {
                    synonyms.add(quoted(synonym.name()));
                }
                parts.add("\"synonyms\":[" + String.join(",", synonyms) + "]");
            }
            Collection<String> probes = probes(key.type, key.validator == null ? "" : key.validator.toString());
            List<String> further = new ArrayList<>(probes);
            further.removeAll(probes(key.type, ""));
            if (!further.isEmpty()) {
                parts.add("\"further\":" + list(further));
            }
            if (hasFiles) {
                parts.add("\"file\":" + quoted(inFile(brokerFile(), key.name, probes)));
                parts.add("\"controller_file\":" + quoted(inFile(controllerFile(), key.name, probes)));
            }
            parts.add("\"codes\":" + codes(admin, resources, key.name, probes));
            out.print(quoted(key.name) + ":{" + String.join(",", parts) + "}");
        }
        out.println("}");
    }

    static String default_(ConfigDef.ConfigKey key) {
        if (!key.hasDefault() || key.defaultValue == null) {
            return "null";
        }
        return quoted(ConfigDef.convertToString(key.defaultValue, key.type));
    }

    /** Returns for each value whether a file with it can be read: 1 or 0. */
    static String inFile(Properties file, String key, Collection<String> values) {
        StringBuilder found = new StringBuilder();
        for (String value : values) {
            Properties changed = new Properties();
            changed.putAll(file);
            changed.put(key, value);
            try {
                KafkaConfig.fromProps(changed, false);
                found.append('1');
            } catch (Exception refused) {
                found.append('0');
            }
        }
        return found.toString();
    }

    /** Returns the broker's error codes for the values, for each resource. */
    static String codes(Admin admin, List<ConfigResource> resources, String key, Collection<String> values)
            throws Exception {
        List<AlterConfigsResult> asked = new ArrayList<>();
        for (String value : values) {
            Map<ConfigResource, Collection<AlterConfigOp>> changes = new LinkedHashMap<>();
            var change = new AlterConfigOp(new ConfigEntry(key, value), AlterConfigOp.OpType.SET);
            resources.forEach(resource -> changes.put(resource, List.of(change)));
            asked.add(admin.incrementalAlterConfigs(changes, new AlterConfigsOptions().validateOnly(true)));
        }
        List<String> found = new ArrayList<>();
        for (ConfigResource resource : resources) {
            List<String> codes = new ArrayList<>();
            for (AlterConfigsResult one : asked) {
                codes.add(String.valueOf(code(one, resource)));
            }
            // One number where the broker answers all values alike.
            boolean areAlike = new LinkedHashSet<>(codes).size() == 1;
            found.add(areAlike ? codes.get(0) : "[" + String.join(",", codes) + "]");
        }
        return "[" + String.join(",", found) + "]";
    }

    static short code(AlterConfigsResult result, ConfigResource resource) throws Exception {
        try {
            result.values().get(resource).get();
            return 0;
        } catch (java.util.concurrent.ExecutionException refused) {
            return Errors.forException(refused.getCause()).code();
        }
    }

    /** Returns the values to try: those of every key of the type, then those at the key's own bounds. */
    static Collection<String> probes(ConfigDef.Type type, String allowed) {
        Set<String> probes = new LinkedHashSet<>();
        switch (type) {
            case BOOLEAN -> probes.addAll(List.of("", "true", "false", "TRUE", " true ", "yes", "1"));
            case INT, LONG, SHORT -> wholeNumbers(allowed, probes);
            case DOUBLE -> fractions(allowed, probes);
            default -> texts(type, allowed, probes);
        }
        return probes;
    }

    static void wholeNumbers(String allowed, Set<String> probes) {
        probes.addAll(List.of("", "-2", "-1", "0", "1", "2", " 7 ", "+7", "\u00a07", "1_0", "1.0", "0x10", "\u0667"));
        for (int bits : new int[] {15, 31, 63}) {
            var bound = java.math.BigInteger.TWO.pow(bits);
            for (var value : List.of(bound.negate(), bound.subtract(java.math.BigInteger.ONE), bound)) {
                probes.add(value.toString());
            }
        }
        for (Matcher number = NUMBER.matcher(allowed); number.find();) {
            var bound = new java.math.BigDecimal(number.group()).toBigInteger();
            for (int step = -1; step <= 1; step++) {
                probes.add(bound.add(java.math.BigInteger.valueOf(step)).toString());
            }
        }
    }

    static void fractions(String allowed, Set<String> probes) {
        probes.addAll(List.of("", "-1", "-0.1", "-0.0", "0", "4.9E-324", "0.5", "1", "1.1", "1e3", " 0.5 ", "1_0",
            "1d", "0x1p-1", "1.7976931348623157E308", "1e400", "NaN", "nan", "Infinity", "inf", "-Infinity"));
        for (Matcher number = NUMBER.matcher(allowed); number.find();) {
            double bound = Double.parseDouble(number.group());
            for (double value : new double[] {Math.nextDown(bound), bound, Math.nextUp(bound)}) {
                probes.add(Double.toString(value));
            }
        }
    }

    static void texts(ConfigDef.Type type, String allowed, Set<String> probes) {
        probes.addAll(List.of("", " ", "nosuch", "nosuch,nosuch", ",", "*"));
        for (Matcher word = WORD.matcher(allowed); word.find();) {
            String value = word.group();
            probes.addAll(List.of(value, value.toUpperCase(), value.toLowerCase(), " " + value + " "));
            if (type == ConfigDef.Type.LIST) {
                probes.addAll(List.of(value + "," + value, value + ",", value + ",nosuch"));
            }
        }
    }

    static String list(Collection<String> texts) {
        return "[" + String.join(",", texts.stream().map(PrintSettings::quoted).toList()) + "]";
    }

    static String quoted(String text) {
        StringBuilder found = new StringBuilder("\"");
        for (char character : text.toCharArray()) {
            if (character == '"' || character == '\\') {
                found.append('\\').append(character);
            } else if (character < ' ' || character > '~') {
                found.append(String.format("\\u%04x", (int) character));
            } else {
                found.append(character);
            }
        }
        return found.append('"').toString();
    }
}
