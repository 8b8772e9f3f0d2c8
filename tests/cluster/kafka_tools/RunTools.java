import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.apache.kafka.common.utils.internals.Exit;

/**
 * Runs Kafka's tools one after the other in one process: JAR…, the jars with the tools. Each tool
 * has classes of its own, since some count in static fields. Each line of the input is a JSON
 * object with `tool`, `words`, `input` and `seconds`, and is answered by one with `code` and
 * `output`. A tool that still runs after these seconds ends as by SIGTERM, with 143.
 */
public class RunTools {
    static final int BY_SIGTERM = 143;
    static final long JOIN_MS = 5_000;

    /** Ends the thread that called Exit. */
    static final class Ended extends Error {
        Ended() {
            super(null, null, false, false);
        }
    }

    public static void main(String[] jars) throws Exception {
        PrintStream answers = System.out;
        ObjectMapper json = new ObjectMapper();
        URL[] urls = new URL[jars.length];
        for (int index = 0; index < jars.length; index++) {
            urls[index] = Path.of(jars[index]).toUri().toURL();
        }
        BufferedReader lines =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            answers.println(json.writeValueAsString(run(urls, json.readTree(line))));
            answers.flush();
        }
        Runtime.getRuntime().halt(0);
    }

    static Map<String, Object> run(URL[] jars, JsonNode asked) throws Exception {
        CompletableFuture<Integer> code = new CompletableFuture<>();
        List<Runnable> hooks = Collections.synchronizedList(new ArrayList<>());
        ByteArrayOutputStream text = new ByteArrayOutputStream();
        PrintStream printed = new PrintStream(text, true, StandardCharsets.UTF_8);
        URLClassLoader own = new URLClassLoader(jars, RunTools.class.getClassLoader());
        Exit.Procedure end = (status, message) -> {
            // Threads of a tool that was left running have another loader.
            boolean isOfThis = Thread.currentThread().getContextClassLoader() == own;
            if (isOfThis && code.complete(status)) {
                // Tools that catch the error below print it, which a real exit prevents.
                print(new PrintStream(OutputStream.nullOutputStream()));
            }
            throw new Ended();
        };
        Exit.setExitProcedure(end);
        Exit.setHaltProcedure(end);
        Exit.setShutdownHookAdder((name, hook) -> hooks.add(hook));
        print(printed);
        System.setIn(new ByteArrayInputStream(
            asked.get("input").asText().getBytes(StandardCharsets.UTF_8)));
        List<String> words = new ArrayList<>();
        asked.get("words").forEach(word -> words.add(word.asText()));
        Thread tool = new Thread(() -> code.complete(
            call(own, asked.get("tool").asText(), words, printed)));
        tool.setContextClassLoader(own);
        tool.setDaemon(true);
        tool.start();
        int ended = BY_SIGTERM;
        try {
            ended = code.get(asked.get("seconds").asLong(), TimeUnit.SECONDS);
            tool.join(JOIN_MS);
        } catch (TimeoutException running) {
            tool.interrupt();
        }
        print(printed);
        hooks.forEach(RunTools::runHook);
        return Map.of("code", ended, "output", text.toString(StandardCharsets.UTF_8));
    }

    static void print(PrintStream to) {
        System.setOut(to);
        System.setErr(to);
    }

    static int call(ClassLoader own, String tool, List<String> words, PrintStream printed) {
        try {
            own.loadClass(tool).getMethod("main", String[].class)
                .invoke(null, (Object) words.toArray(new String[0]));
            return 0;
        } catch (InvocationTargetException failed) {
            if (!(failed.getCause() instanceof Ended) && System.out == printed) {
                printed.print("Exception in thread \"main\" ");
                failed.getCause().printStackTrace(printed);
            }
        } catch (ReflectiveOperationException missing) {
            missing.printStackTrace(printed);
        }
        return 1;
    }

    static void runHook(Runnable hook) {
        try {
            hook.run();
        } catch (Ended again) {
            // The code is known.
        }
    }
}
