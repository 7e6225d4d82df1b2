package dev.mailboat.sling;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.sling.api.resource.ResourceResolver;
import org.apache.sling.distribution.DistributionRequestType;
import org.apache.sling.distribution.DistributionResponse;
import org.apache.sling.distribution.SimpleDistributionRequest;
import org.apache.sling.distribution.journal.impl.publisher.DiscoveryService;
import org.apache.sling.distribution.journal.impl.publisher.DistributionPublisher;
import org.apache.sling.distribution.journal.impl.publisher.PackageDistributedNotifier;
import org.apache.sling.distribution.journal.impl.publisher.PackageMessageFactory;
import org.apache.sling.distribution.journal.impl.publisher.PackageQueuedNotifier;
import org.apache.sling.distribution.journal.impl.publisher.PackageRepo;
import org.apache.sling.distribution.journal.impl.publisher.PublisherConfiguration;
import org.apache.sling.distribution.journal.impl.publisher.TopologyChangeHandler;
import org.apache.sling.distribution.journal.impl.queue.impl.PubQueueCacheService;
import org.apache.sling.distribution.journal.impl.queue.impl.PubQueueProviderImpl;
import org.apache.sling.distribution.queue.DistributionQueueEntry;
import org.apache.sling.distribution.queue.spi.DistributionQueue;

/** The original's publisher agent with its queues, its discovery and its events. */
final class Author implements AutoCloseable {
    private final Instance instance;
    private final DiscoveryService discovery = new DiscoveryService();
    private final PubQueueCacheService cache = new PubQueueCacheService();
    private final PubQueueProviderImpl queues = new PubQueueProviderImpl();
    private final DistributionPublisher publisher = new DistributionPublisher();

    Author(Instance instance, String name, String packageType) {
        this.instance = instance;
        PackageQueuedNotifier queued = new PackageQueuedNotifier();
        instance.handlers.add(queued);
        instance.wire(
                cache, "journalAvailable", "messagingProvider", "topics", "eventAdmin", "distributionMetricsService");
        cache.activate();
        PackageDistributedNotifier distributed = new PackageDistributedNotifier();
        instance.wire(distributed, "eventAdmin", "messagingProvider", "topics");
        Wiring.with(distributed, Map.of("pubQueueCacheService", cache)).activate();
        instance.wire(discovery, "journalAvailable", "messagingProvider", "topics");
        Wiring.with(discovery, Map.of("topologyChangeHandler", (TopologyChangeHandler) distributed));
        discovery.activate(instance.context);
        instance.wire(queues, "messagingProvider", "topics");
        Wiring.with(queues, Map.of("pubQueueCacheService", cache)).activate();
        PackageRepo repo = new PackageRepo();
        instance.wire(
                repo, "resolverFactory", "topics", "messagingProvider", "mapped", "distributionMetricsService");
        PackageMessageFactory factory = instance.wire(new PackageMessageFactory(), "slingSettings");
        Wiring.with(factory, Map.of("packageRepo", repo)).activate();
        instance.wire(
                publisher, "messagingProvider", "eventAdmin", "topics", "journalAvailable", "distributionMetricsService");
        Wiring.with(publisher, Map.of(
                "packageBuilder", instance.packageBuilder(packageType),
                "queuedNotifier", queued,
                "pubQueueProvider", queues,
                "discoveryService", discovery,
                "factory", factory));
        publisher.activate(
                Wiring.configuration(PublisherConfiguration.class, Map.of("name", name)), instance.context);
    }

    /** Distribute paths; the state of the answer. */
    String distribute(String type, boolean isDeep, String... paths) throws Exception {
        SimpleDistributionRequest request =
                new SimpleDistributionRequest(DistributionRequestType.valueOf(type), isDeep, paths);
        try (ResourceResolver resolver = instance.resolver()) {
            DistributionResponse response = publisher.execute(resolver, request);
            return response.getState().name();
        }
    }

    /** All queues by name, with a topology of this moment. */
    Map<String, Object> queues() {
        discovery.run();
        Map<String, Object> found = new TreeMap<>();
        for (String name : publisher.getQueueNames()) {
            DistributionQueue queue = publisher.getQueue(name);
            List<Map<String, Object>> items = new ArrayList<>();
            for (DistributionQueueEntry entry : queue.getEntries(0, -1)) {
                Map<String, Object> item = new LinkedHashMap<>();
                item.put("id", entry.getId());
                item.put("package", entry.getItem().getPackageId());
                item.put("attempts", entry.getStatus().getAttempts());
                item.put("state", entry.getStatus().getItemState().name());
                items.add(item);
            }
            Map<String, Object> shown = new LinkedHashMap<>();
            shown.put("state", queue.getStatus().getState().name());
            shown.put("clearable", queue.hasCapability("clearable"));
            shown.put("items", items);
            found.put(name, shown);
        }
        return found;
    }

    /** Clear so many entries of a queue; how many the original says that it removed. */
    int clear(String queue, int limit) {
        int removed = 0;
        for (DistributionQueueEntry ignored : publisher.getQueue(queue).clear(limit)) {
            removed++;
        }
        return removed;
    }

    @Override
    public void close() {
        publisher.deactivate();
        queues.deactivate();
        discovery.deactivate();
        cache.deactivate();
    }
}
