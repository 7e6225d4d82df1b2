package dev.mailboat.jackrabbit;

import java.io.BufferedReader;
import java.io.File;
import java.io.FileInputStream;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.io.StringReader;
import java.lang.reflect.Field;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.zip.ZipEntry;
import java.util.zip.ZipInputStream;
import javax.jcr.Node;
import javax.jcr.NodeIterator;
import javax.jcr.Property;
import javax.jcr.PropertyIterator;
import javax.jcr.PropertyType;
import javax.jcr.Repository;
import javax.jcr.Session;
import javax.jcr.SimpleCredentials;
import javax.jcr.Value;
import javax.jcr.nodetype.NodeType;
import org.apache.jackrabbit.api.JackrabbitRepository;
import org.apache.jackrabbit.api.JackrabbitWorkspace;
import org.apache.jackrabbit.api.security.authorization.PrivilegeManager;
import org.apache.jackrabbit.commons.cnd.CndImporter;
import org.apache.jackrabbit.oak.Oak;
import org.apache.jackrabbit.oak.jcr.Jcr;
import org.apache.jackrabbit.oak.plugins.memory.MemoryNodeStore;
import org.apache.jackrabbit.oak.security.internal.SecurityProviderBuilder;
import org.apache.jackrabbit.oak.spi.security.ConfigurationParameters;
import org.apache.jackrabbit.oak.spi.security.SecurityProvider;
import org.apache.jackrabbit.oak.spi.security.authorization.AuthorizationConfiguration;
import org.apache.jackrabbit.oak.spi.security.user.UserConfiguration;
import org.apache.jackrabbit.oak.spi.security.user.UserConstants;
import org.apache.jackrabbit.oak.spi.state.NodeState;
import org.apache.jackrabbit.oak.spi.xml.ImportBehavior;
import org.apache.jackrabbit.oak.spi.xml.ProtectedItemImporter;
import org.apache.jackrabbit.vault.fs.api.PathFilterSet;
import org.apache.jackrabbit.vault.fs.api.ProgressTrackerListener;
import org.apache.jackrabbit.vault.fs.config.DefaultMetaInf;
import org.apache.jackrabbit.vault.fs.config.DefaultWorkspaceFilter;
import org.apache.jackrabbit.vault.fs.config.MetaInf;
import org.apache.jackrabbit.vault.fs.io.Archive;
import org.apache.jackrabbit.vault.fs.io.ImportOptions;
import org.apache.jackrabbit.vault.fs.io.Importer;
import org.apache.jackrabbit.vault.fs.io.ZipArchive;
import org.apache.jackrabbit.vault.fs.io.ZipStreamArchive;
import org.apache.jackrabbit.vault.packaging.ExportOptions;
import org.apache.jackrabbit.vault.packaging.PackageProperties;
import org.apache.jackrabbit.vault.packaging.VaultPackage;
import org.apache.jackrabbit.vault.packaging.impl.PackageManagerImpl;
import org.apache.jackrabbit.vault.util.PlatformNameFormat;

/**
 * Jackrabbit FileVault over an in-memory Oak repository, driven by lines on standard input: a command and its
 * arguments, separated by tabs. Every answer is one line: "ok", a tab and JSON, or "error", a tab and a JSON text.
 */
public final class Exchange {
    private final Map<String, NodeState> empty = new HashMap<>();
    private final Map<String, NodeState> kept = new HashMap<>();
    private MemoryNodeStore store;
    private Repository repository;
    private Session session;

    public static void main(String[] arguments) throws Exception {
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        System.setOut(System.err);
        Exchange exchange = new Exchange();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            try {
                out.print("ok\t" + exchange.run(line.split("\t", -1)) + "\n");
            } catch (Throwable error) {
                out.print("error\t" + quote(describe(error)) + "\n");
            }
            out.flush();
        }
    }

    private String run(String[] words) throws Exception {
        switch (words[0]) {
            case "reset":
                return reset(words[1]);
            case "keep":
                kept.put(words[1], store.getRoot());
                return "null";
            case "restore":
                return open(new MemoryNodeStore(kept.get(words[1])));
            case "forget":
                kept.clear();
                return "null";
            case "import":
                return importPackage(words[1], true);
            case "import-file":
                return importPackage(words[1], false);
            case "install":
                return install(words[1]);
            case "litter":
                return litter(words);
            case "export":
                return export(words);
            case "repack":
                return repack(words[1], words[2]);
            case "filter":
                return filter(words);
            case "validate":
                return list(Validation.messages(new File(words[1]), new File(words[2])));
            case "dump":
                return dump(words[1]);
            case "namespaces":
                return namespaces();
            case "stream":
                return stream(words[1]);
            case "property-names":
                return propertyNames();
            case "properties":
                return properties(words[1]);
            case "names":
                return names(words);
            default:
                throw new IllegalArgumentException("unknown command " + words[0]);
        }
    }

    /** A new, empty repository with the node types of a file. */
    private String reset(String types) throws Exception {
        if (empty.containsKey(types)) {
            return open(new MemoryNodeStore(empty.get(types)));
        }
        open(new MemoryNodeStore());
        String definitions = Files.readString(Path.of(types), StandardCharsets.UTF_8);
        CndImporter.registerNodeTypes(new StringReader(definitions), session);
        session.getWorkspace().getNamespaceRegistry().registerNamespace("crx", "http://www.day.com/crx/1.0");
        PrivilegeManager privileges = ((JackrabbitWorkspace) session.getWorkspace()).getPrivilegeManager();
        privileges.registerPrivilege("crx:replicate", false, new String[0]);
        empty.put(types, store.getRoot());
        return "null";
    }

    private String open(MemoryNodeStore next) throws Exception {
        if (session != null) {
            session.logout();
            ((JackrabbitRepository) repository).shutdown();
        }
        store = next;
        repository = new Jcr(new Oak(store)).with(likeAem()).createRepository();
        session = newSession();
        return "null";
    }

    /** Users and groups below /home, and access control entries of principals that are not there, as AEM has them. */
    private static SecurityProvider likeAem() {
        ConfigurationParameters lenient =
                ConfigurationParameters.of(ProtectedItemImporter.PARAM_IMPORT_BEHAVIOR, ImportBehavior.NAME_BESTEFFORT);
        ConfigurationParameters users = ConfigurationParameters.of(
                lenient,
                ConfigurationParameters.of(
                        UserConstants.PARAM_USER_PATH, "/home/users", UserConstants.PARAM_GROUP_PATH, "/home/groups"));
        return SecurityProviderBuilder.newBuilder()
                .with(ConfigurationParameters.of(
                        UserConfiguration.NAME, users, AuthorizationConfiguration.NAME, lenient))
                .build();
    }

    /** Import through the streaming reader, as Sling does, or through the random-access one, as the package manager does. */
    private String importPackage(String file, boolean isStreamed) throws Exception {
        List<String> problems = new ArrayList<>();
        ImportOptions options = new ImportOptions();
        options.setListener(collecting(problems));
        try (InputStream in = new FileInputStream(file)) {
            Archive archive = isStreamed ? new ZipStreamArchive(in) : new ZipArchive(new File(file));
            archive.open(true);
            try {
                new Importer(options).run(archive, session, "/");
            } finally {
                archive.close();
            }
        }
        session.save();
        return list(problems);
    }

    private static ProgressTrackerListener collecting(List<String> problems) {
        return new ProgressTrackerListener() {
            @Override
            public void onMessage(Mode mode, String action, String path) {}

            @Override
            public void onError(Mode mode, String path, Exception error) {
                problems.add(path + ": " + describe(error));
            }
        };
    }

    /** Import as the package manager installs, with the access control and the rules that the package asks for. */
    private String install(String file) throws Exception {
        List<String> problems = new ArrayList<>();
        ImportOptions options = new ImportOptions();
        options.setListener(collecting(problems));
        try (VaultPackage opened = new PackageManagerImpl().open(new File(file))) {
            opened.extract(session, options);
        }
        session.save();
        return list(problems);
    }

    /**
     * Put content of others everywhere: a property and a child in each node that takes them; and remove some nodes.
     * The words are beginnings of paths to leave alone.
     */
    private String litter(String[] words) throws Exception {
        litter(session.getRootNode(), words, new int[1]);
        session.save();
        return "null";
    }

    private static void litter(Node node, String[] words, int[] count) throws Exception {
        for (int index = 1; index < words.length; index++) {
            if (node.getPath().startsWith(words[index])) {
                return;
            }
        }
        boolean isFree = node.isNodeType("nt:unstructured");
        Map<String, Node> children = new TreeMap<>(); // Oak's order of some is another one in each repository
        for (NodeIterator all = node.getNodes(); all.hasNext(); ) {
            Node child = all.nextNode();
            children.put(child.getName(), child);
        }
        for (Node child : children.values()) {
            if (isFree && !child.hasNodes() && !child.getDefinition().isProtected() && ++count[0] % 7 == 0) {
                child.remove();
            } else if (!child.getDefinition().isProtected()) {
                litter(child, words, count);
            }
        }
        NodeType type = node.getPrimaryNodeType();
        if (type.canSetProperty("litter", node.getSession().getValueFactory().createValue("by another"))) {
            node.setProperty("litter", "by another");
        }
        // A folder where it may be: a package may turn the node into an nt:folder, which can't keep other children.
        String child = type.canAddChildNode("litter", "nt:folder") ? "nt:folder" : "nt:unstructured";
        if (type.canAddChildNode("litter", child)) {
            node.addNode("litter", child);
        }
    }

    /** Export what a package covers, by its own filter, into another one. */
    private String repack(String original, String file) throws Exception {
        ExportOptions options = new ExportOptions();
        try (VaultPackage opened = new PackageManagerImpl().open(new File(original))) {
            DefaultMetaInf metadata = new DefaultMetaInf();
            metadata.setFilter(opened.getMetaInf().getFilter());
            metadata.setProperties(opened.getMetaInf().getProperties());
            options.setMetaInf(metadata);
        }
        new PackageManagerImpl().assemble(session, options, new File(file)).close();
        return "null";
    }

    /** Export roots into a package: file, "binaryless" or "full", roots. */
    private String export(String[] words) throws Exception {
        DefaultWorkspaceFilter filter = new DefaultWorkspaceFilter();
        for (int index = 3; index < words.length; index++) {
            filter.add(new PathFilterSet(words[index]));
        }
        Properties properties = new Properties();
        properties.setProperty("name", "exported");
        properties.setProperty("group", "mailboat");
        properties.setProperty("version", "1.0");
        properties.setProperty("useBinaryReferences", String.valueOf(words[2].equals("binaryless")));
        DefaultMetaInf metadata = new DefaultMetaInf();
        metadata.setFilter(filter);
        metadata.setProperties(properties);
        ExportOptions options = new ExportOptions();
        options.setMetaInf(metadata);
        new PackageManagerImpl().assemble(session, options, new File(words[1])).close();
        return "null";
    }

    /** What a filter says of paths: file, name of a property, paths. Of each: covered, mode, property covered. */
    private static String filter(String[] words) throws Exception {
        DefaultWorkspaceFilter filter = new DefaultWorkspaceFilter();
        filter.load(new File(words[1]));
        List<String> said = new ArrayList<>();
        for (int index = 3; index < words.length; index++) {
            String path = words[index];
            String property = path.equals("/") ? path + words[2] : path + "/" + words[2];
            said.add(filter.contains(path) + " " + filter.getImportMode(path) + " " + filter.includesProperty(property));
        }
        return list(said);
    }

    /**
     * The nodes as a new session shows them: the importing session has the prefixes of the package, whatever their
     * namespaces are called in the repository.
     */
    private String dump(String path) throws Exception {
        List<String> nodes = new ArrayList<>();
        Session reader = newSession();
        try {
            if (reader.nodeExists(path)) {
                dump(reader.getNode(path), nodes);
            }
        } finally {
            reader.logout();
        }
        return "[" + String.join(",", nodes) + "]";
    }

    /** The namespace of each prefix in a new session. */
    private String namespaces() throws Exception {
        List<String> found = new ArrayList<>();
        Session reader = newSession();
        try {
            for (String prefix : reader.getNamespacePrefixes()) {
                found.add(quote(prefix) + ":" + quote(reader.getNamespaceURI(prefix)));
            }
        } finally {
            reader.logout();
        }
        return "{" + String.join(",", found) + "}";
    }

    private Session newSession() throws Exception {
        return repository.login(new SimpleCredentials("admin", "admin".toCharArray()));
    }

    private void dump(Node node, List<String> into) throws Exception {
        List<String> properties = new ArrayList<>();
        for (PropertyIterator all = node.getProperties(); all.hasNext(); ) {
            Property one = all.nextProperty();
            List<String> values = new ArrayList<>();
            for (Value value : one.isMultiple() ? one.getValues() : new Value[] {one.getValue()}) {
                values.add(one.getType() == PropertyType.BINARY ? digest(value) : value.getString());
            }
            properties.add(quote(one.getName()) + ":[" + one.getType() + "," + one.isMultiple() + "," + list(values) + "]");
        }
        List<String> mixins = new ArrayList<>();
        for (NodeType mixin : node.getMixinNodeTypes()) {
            mixins.add(mixin.getName());
        }
        List<String> children = new ArrayList<>();
        for (NodeIterator all = node.getNodes(); all.hasNext(); ) {
            children.add(all.nextNode().getName());
        }
        into.add("{\"path\":" + quote(node.getPath())
                + ",\"type\":" + quote(node.getPrimaryNodeType().getName())
                + ",\"mixins\":" + list(mixins)
                + ",\"is_ordered\":" + node.getPrimaryNodeType().hasOrderableChildNodes()
                + ",\"children\":" + list(children)
                + ",\"properties\":{" + String.join(",", properties) + "}}");
        for (NodeIterator all = node.getNodes(); all.hasNext(); ) {
            dump(all.nextNode(), into);
        }
    }

    private static String digest(Value value) throws Exception {
        MessageDigest total = MessageDigest.getInstance("SHA-256");
        try (InputStream in = value.getBinary().getStream()) {
            total.update(in.readAllBytes());
        }
        return HexFormat.of().formatHex(total.digest());
    }

    /** Names and digests of the entries that java.util.zip's streaming reader finds. */
    private static String stream(String file) throws Exception {
        List<String> entries = new ArrayList<>();
        try (ZipInputStream in = new ZipInputStream(new FileInputStream(file))) {
            for (ZipEntry entry = in.getNextEntry(); entry != null; entry = in.getNextEntry()) {
                MessageDigest total = MessageDigest.getInstance("SHA-256");
                byte[] buffer = new byte[65536];
                for (int count = in.read(buffer); count >= 0; count = in.read(buffer)) {
                    total.update(buffer, 0, count);
                }
                entries.add(entry.getName() + " " + HexFormat.of().formatHex(total.digest()));
            }
        }
        return list(entries);
    }

    /** The properties of packages that FileVault has names for. */
    private static String propertyNames() throws Exception {
        TreeSet<String> names = new TreeSet<>();
        for (Class<?> kind : List.of(PackageProperties.class, MetaInf.class)) {
            for (Field field : kind.getFields()) {
                if (field.getType() == String.class && !field.getName().startsWith("MF_KEY_")) {
                    names.add((String) field.get(null));
                }
            }
        }
        return list(new ArrayList<>(names));
    }

    /** What FileVault reads in the properties of a package, with its id. */
    private static String properties(String file) throws Exception {
        try (VaultPackage opened = new PackageManagerImpl().open(new File(file))) {
            List<String> found = new ArrayList<>();
            Properties properties = opened.getMetaInf().getProperties();
            for (String name : properties.stringPropertyNames()) {
                found.add(quote(name) + ":" + quote(properties.getProperty(name)));
            }
            found.add(quote("id") + ":" + quote(opened.getId().toString()));
            return "{" + String.join(",", found) + "}";
        }
    }

    /** What FileVault makes of names: the platform name of each, and the name it makes of the second half of the words. */
    private static String names(String[] words) {
        List<String> made = new ArrayList<>();
        for (int index = 1; index < words.length; index++) {
            made.add(PlatformNameFormat.getPlatformName(words[index]));
            made.add(PlatformNameFormat.getRepositoryName(words[index]));
        }
        return list(made);
    }

    private static String describe(Throwable error) {
        StringBuilder text = new StringBuilder();
        for (Throwable one = error; one != null && text.length() < 2000; one = one.getCause()) {
            text.append(text.length() > 0 ? " <- " : "").append(one);
        }
        return text.toString();
    }

    private static String list(List<String> texts) {
        List<String> quoted = new ArrayList<>();
        for (String text : texts) {
            quoted.add(quote(text));
        }
        return "[" + String.join(",", quoted) + "]";
    }

    private static String quote(String text) {
        StringBuilder quoted = new StringBuilder("\"");
        for (char one : text.toCharArray()) {
            if (one == '"' || one == '\\' || one < ' ' || one > '~') {
                quoted.append(String.format("\\u%04x", (int) one));
            } else {
                quoted.append(one);
            }
        }
        return quoted.append('"').toString();
    }
}
