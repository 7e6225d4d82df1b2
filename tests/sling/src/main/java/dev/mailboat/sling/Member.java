package dev.mailboat.sling;

import com.fasterxml.jackson.databind.ObjectMapper;
import com.sun.management.OperatingSystemMXBean;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.management.ManagementFactory;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CopyOnWriteArrayList;
import org.apache.sling.distribution.journal.HandlerAdapter;
import org.apache.sling.distribution.journal.Reset;
import org.apache.sling.distribution.journal.impl.publisher.AgentId;
import org.apache.sling.distribution.journal.impl.subscriber.DefaultPrecondition;
import org.apache.sling.distribution.journal.impl.subscriber.DistributionSubscriber;
import org.apache.sling.distribution.journal.impl.subscriber.Precondition;
import org.apache.sling.distribution.journal.impl.subscriber.StagingPrecondition;
import org.apache.sling.distribution.journal.impl.subscriber.SubscriberConfiguration;
import org.apache.sling.distribution.journal.messages.Messages.CommandMessage;
import org.apache.sling.distribution.journal.messages.Messages.DiscoveryMessage;
import org.apache.sling.distribution.journal.messages.Messages.PackageMessage;
import org.apache.sling.distribution.journal.messages.Messages.PackageStatusMessage;
import org.apache.sling.distribution.journal.messages.PackageDistributedMessage;

/**
 * Agents of Apache Sling Distribution Journal 0.1.6 on a real broker, driven by lines on standard input: a command and
 * its arguments, separated by tabs. Every answer is one line: "ok", a tab and JSON, or "error", a tab and a JSON text.
 */
public final class Member {
    private static final ObjectMapper JSON = new ObjectMapper();
    private final List<AutoCloseable> opened = new ArrayList<>();
    private final List<Map<String, Object>> heard = new CopyOnWriteArrayList<>();
    private Instance instance;
    private Author author;

    public static void main(String[] arguments) throws Exception {
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        System.setOut(System.err);
        Wiring.set(DistributionSubscriber.class, null, "QUEUE_FETCH_DELAY", 20);
        Wiring.set(DistributionSubscriber.class, null, "RETRY_DELAY", 100);
        Member member = new Member();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            try {
                out.print("ok\t" + JSON.writeValueAsString(member.run(line.split("\t", -1))) + "\n");
            } catch (Throwable error) {
                out.print("error\t" + JSON.writeValueAsString(describe(error)) + "\n");
            }
            out.flush();
        }
        System.exit(0);
    }

    private Object run(String[] words) throws Exception {
        switch (words[0]) {
            case "join":
                return join(words[1], words[2], words[3]);
            case "leave":
                return leave();
            case "put":
                instance.put(words[1], words[2], words[3]);
                return null;
            case "put-pages":
                for (int page = 0; page < Integer.parseInt(words[2]); page++) {
                    instance.putPage(words[1] + "/page-" + page);
                }
                return null;
            case "distribute-pages":
                return distributePages(words[1], Integer.parseInt(words[2]), Integer.parseInt(words[3]));
            case "await":
                return await(words[1]);
            case "read":
                return instance.read(words[1]);
            case "publisher":
                author = open(new Author(instance, words[1], words[2]));
                return null;
            case "distribute":
                return author.distribute(
                        words[1], Boolean.parseBoolean(words[2]), Arrays.copyOfRange(words, 3, words.length));
            case "queues":
                return author.queues();
            case "clear":
                return author.clear(words[1], Integer.parseInt(words[2]));
            case "subscriber":
                return subscriber(words);
            case "listen":
                return listen();
            case "heard":
                return heard;
            case "agent-id":
                return new AgentId(words[1], words[2]).getAgentId();
            default:
                throw new IllegalArgumentException("unknown command " + words[0]);
        }
    }

    /** Distribute pages, each as a package, from one number to another; the CPU time of this process for it. */
    private double distributePages(String folder, int from, int to) throws Exception {
        double before = cpuSeconds();
        for (int page = from; page < to; page++) {
            author.distribute("ADD", true, folder + "/page-" + page);
        }
        return cpuSeconds() - before;
    }

    /** Wait until there is a property; the CPU time of this process until then. */
    private double await(String path) throws Exception {
        while (instance.read(path) == null) {
            Thread.sleep(20);
        }
        return cpuSeconds();
    }

    private static double cpuSeconds() {
        OperatingSystemMXBean system = (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
        return system.getProcessCpuTime() / 1e9;
    }

    /** A new instance with an empty repository on the topics with a prefix. */
    private Object join(String slingId, String servers, String prefix) throws Exception {
        leave();
        instance = open(new Instance(slingId, servers, prefix));
        return null;
    }

    private Object leave() throws Exception {
        for (int i = opened.size() - 1; i >= 0; i--) {
            opened.get(i).close();
        }
        opened.clear();
        heard.clear();
        return null;
    }

    /** A subscriber: name, package type, whether it is editable, retries, whom it waits for, and a publisher. */
    private Object subscriber(String[] words) {
        DistributionSubscriber subscriber = new DistributionSubscriber();
        instance.wire(
                subscriber, "slingSettings", "resolverFactory", "messagingProvider", "topics", "eventAdmin",
                "journalAvailable", "distributionMetricsService", "mappedUser", "packaging");
        Wiring.with(subscriber, Map.of(
                "packageBuilder", instance.packageBuilder(words[2]), "precondition", precondition(words[5])));
        // it begins to poll before it knows its type, and would lose what comes in between
        Wiring.set(DistributionSubscriber.class, subscriber, "pkgType", words[2]);
        Map<String, Object> values = Map.of(
                "name", words[1],
                "editable", Boolean.parseBoolean(words[3]),
                "maxRetries", Integer.parseInt(words[4]),
                "agentNames", new String[] {words[6]});
        subscriber.activate(
                Wiring.configuration(SubscriberConfiguration.class, values), instance.context,
                Map.of("announceDelay", 200));
        opened.add(subscriber::deactivate);
        return null;
    }

    /** Waits for the statuses of a golden subscriber; for nobody where no name is given. */
    private Precondition precondition(String golden) {
        if (golden.isEmpty()) {
            return new DefaultPrecondition();
        }
        StagingPrecondition precondition = instance.wire(new StagingPrecondition(), "messagingProvider", "topics");
        precondition.activate(
                Wiring.configuration(StagingPrecondition.Configuration.class, Map.of("subAgentName", golden)));
        opened.add(precondition::deactivate);
        return precondition;
    }

    /** Hear all five topics from their beginning with the original's pollers. */
    private Object listen() {
        hear(instance.topics.getPackageTopic(), HandlerAdapter.create(PackageMessage.class, (info, one) ->
                note("package", info.getOffset(), one.getPkgId(), one.getReqType(), one.toString())));
        hear(instance.topics.getStatusTopic(), HandlerAdapter.create(PackageStatusMessage.class, (info, one) ->
                note("status", one.getOffset(), one.getSubAgentName(), one.getStatus(), one.toString())));
        hear(instance.topics.getDiscoveryTopic(), HandlerAdapter.create(DiscoveryMessage.class, (info, one) ->
                note("discovery", one.getSubscriberState(0).getOffset(), one.getSubAgentName(), "", one.toString())));
        hear(instance.topics.getCommandTopic(), HandlerAdapter.create(CommandMessage.class, (info, one) ->
                note("command", one.getClearCommand().getOffset(), one.getSubAgentName(), "", one.toString())));
        opened.add(instance.provider.createJsonPoller(
                instance.topics.getEventTopic(), Reset.earliest,
                (info, one) -> note("event", one.offset, one.packageId, one.pubAgentName, String.join(",", one.paths)),
                PackageDistributedMessage.class));
        return null;
    }

    private void hear(String topic, HandlerAdapter<?> adapter) {
        opened.add(instance.provider.createPoller(topic, Reset.earliest, adapter));
    }

    private void note(String topic, long offset, String name, Object kind, String text) {
        Map<String, Object> noted = new LinkedHashMap<>();
        noted.put("topic", topic);
        noted.put("offset", offset);
        noted.put("name", name);
        noted.put("kind", kind.toString());
        noted.put("text", text);
        heard.add(noted);
    }

    private <T extends AutoCloseable> T open(T resource) {
        opened.add(resource);
        return resource;
    }

    private static String describe(Throwable error) {
        StringBuilder text = new StringBuilder();
        for (Throwable one = error; one != null && text.length() < 4000; one = one.getCause()) {
            text.append(text.length() == 0 ? "" : " <- ").append(one);
        }
        return text.toString();
    }
}
