package dev.mailboat.sling;

import java.lang.reflect.Proxy;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CopyOnWriteArrayList;
import javax.jcr.Node;
import javax.jcr.Session;
import org.apache.jackrabbit.commons.JcrUtils;
import org.apache.jackrabbit.vault.fs.api.ImportMode;
import org.apache.jackrabbit.vault.fs.io.AccessControlHandling;
import org.apache.jackrabbit.vault.packaging.Packaging;
import org.apache.jackrabbit.vault.packaging.impl.PackagingImpl;
import org.apache.sling.api.resource.ResourceResolver;
import org.apache.sling.api.resource.ResourceResolverFactory;
import org.apache.sling.commons.metrics.MetricsService;
import org.apache.sling.distribution.journal.JournalAvailable;
import org.apache.sling.distribution.journal.impl.shared.DistributionMetricsService;
import org.apache.sling.distribution.journal.impl.shared.Topics;
import org.apache.sling.distribution.journal.kafka.KafkaClientProvider;
import org.apache.sling.distribution.journal.kafka.KafkaEndpoint;
import org.apache.sling.distribution.packaging.DistributionPackageBuilder;
import org.apache.sling.distribution.packaging.impl.InMemoryDistributionPackageBuilder;
import org.apache.sling.distribution.serialization.impl.vlt.FileVaultContentSerializer;
import org.apache.sling.serviceusermapping.ServiceUserMapped;
import org.apache.sling.settings.SlingSettingsService;
import org.apache.sling.testing.mock.osgi.MockOsgi;
import org.apache.sling.testing.mock.sling.MockSling;
import org.apache.sling.testing.mock.sling.ResourceResolverType;
import org.osgi.framework.BundleContext;
import org.osgi.service.event.Event;
import org.osgi.service.event.EventAdmin;
import org.osgi.service.event.EventHandler;

/** A Sling instance: a repository in memory, the original's Kafka provider, and the services that its agents need. */
final class Instance implements AutoCloseable {
    final BundleContext context = MockOsgi.newBundleContext();
    final List<EventHandler> handlers = new CopyOnWriteArrayList<>();
    final Topics topics = new Topics();
    final KafkaClientProvider provider;
    final DistributionMetricsService metrics;
    final ResourceResolverFactory resolvers;
    private final SlingSettingsService settings;
    private final Packaging packaging = new PackagingImpl();
    private final EventAdmin events = new EventAdmin() {
        @Override
        public void postEvent(Event event) {
            handlers.forEach(one -> one.handleEvent(event));
        }

        @Override
        public void sendEvent(Event event) {
            postEvent(event);
        }
    };

    Instance(String slingId, String servers, String prefix) {
        settings = (SlingSettingsService) Proxy.newProxyInstance(
                getClass().getClassLoader(),
                new Class<?>[] {SlingSettingsService.class},
                (self, method, arguments) -> method.getName().equals("getSlingId") ? slingId : null);
        topics.activate(Wiring.configuration(Topics.TopicsConfiguration.class, Map.of(
                "packageTopic", prefix + "package",
                "discoveryTopic", prefix + "discovery",
                "statusTopic", prefix + "status",
                "commandTopic", prefix + "command",
                "eventTopic", prefix + "event")));
        provider = Wiring.with(new KafkaClientProvider(), Map.of("eventAdmin", events));
        provider.activate(Wiring.configuration(KafkaEndpoint.class, Map.of(
                "kafkaBootstrapServers", servers, "saslJaasConfig", "")));
        metrics = Wiring.with(
                new DistributionMetricsService(), Map.of("metricsService", Wiring.idle(MetricsService.class)));
        metrics.activate(context);
        resolvers = MockSling.newResourceResolverFactory(ResourceResolverType.JCR_OAK, context);
    }

    /** What a component refers to by this name. */
    Object service(String name) {
        switch (name) {
            case "messagingProvider":
                return provider;
            case "topics":
                return topics;
            case "eventAdmin":
                return events;
            case "slingSettings":
                return settings;
            case "resolverFactory":
                return resolvers;
            case "journalAvailable":
                return Wiring.idle(JournalAvailable.class);
            case "distributionMetricsService":
                return metrics;
            case "mappedUser":
            case "mapped":
                return Wiring.idle(ServiceUserMapped.class);
            case "packaging":
                return packaging;
            default:
                throw new IllegalArgumentException(name);
        }
    }

    /** The component with the named services of this instance. */
    <T> T wire(T component, String... names) {
        for (String name : names) {
            Wiring.set(component.getClass(), component, name, service(name));
        }
        return component;
    }

    /** The package builder that a Sling configuration of type `inmemory` gives; its name is the type of its packages. */
    DistributionPackageBuilder packageBuilder(String name) {
        FileVaultContentSerializer serializer = new FileVaultContentSerializer(
                name, packaging, ImportMode.REPLACE, AccessControlHandling.MERGE_PRESERVE, new String[0], new String[0],
                new String[0], false, -1, Map.of(), true);
        return new InMemoryDistributionPackageBuilder(name, serializer, new String[0], new String[0]);
    }

    ResourceResolver resolver() throws Exception {
        return resolvers.getAdministrativeResourceResolver(null);
    }

    /** Make a node with one property, and the nodes above it. */
    void put(String path, String property, String value) throws Exception {
        try (ResourceResolver resolver = resolver()) {
            Session session = resolver.adaptTo(Session.class);
            Node node = JcrUtils.getOrCreateByPath(path, "nt:unstructured", session);
            node.setProperty(property, value);
            session.save();
        }
    }

    /** Make a page of ten properties. */
    void putPage(String path) throws Exception {
        try (ResourceResolver resolver = resolver()) {
            Session session = resolver.adaptTo(Session.class);
            Node node = JcrUtils.getOrCreateByPath(path, "nt:unstructured", session);
            for (int property = 0; property < 10; property++) {
                node.setProperty("text" + property, ("a line of page " + path + " ").repeat(5) + property);
            }
            session.save();
        }
    }

    /** The value of a property; null where there is none. */
    String read(String path) throws Exception {
        try (ResourceResolver resolver = resolver()) {
            Session session = resolver.adaptTo(Session.class);
            return session.propertyExists(path) ? session.getProperty(path).getString() : null;
        }
    }

    @Override
    public void close() {
        provider.close();
        MockOsgi.shutdown(context);
    }
}
