package dev.mailboat.jackrabbit;

import java.io.ByteArrayInputStream;
import java.io.File;
import java.io.InputStream;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import org.apache.jackrabbit.vault.fs.io.Archive;
import org.apache.jackrabbit.vault.fs.io.DocViewParser;
import org.apache.jackrabbit.vault.fs.io.ZipArchive;
import org.apache.jackrabbit.vault.util.Constants;
import org.apache.jackrabbit.vault.validation.ValidationExecutor;
import org.apache.jackrabbit.vault.validation.ValidationExecutorFactory;
import org.apache.jackrabbit.vault.validation.ValidationViolation;
import org.apache.jackrabbit.vault.validation.context.ArchiveValidationContext;
import org.apache.jackrabbit.vault.validation.impl.util.ValidatorSettingsImpl;
import org.apache.jackrabbit.vault.validation.spi.JcrPathValidator;
import org.apache.jackrabbit.vault.validation.spi.ValidationMessage;
import org.apache.jackrabbit.vault.validation.spi.ValidationMessageSeverity;
import org.apache.jackrabbit.vault.validation.spi.impl.AdvancedFilterValidatorFactory;
import org.apache.jackrabbit.vault.validation.spi.util.NodeContextImpl;

/** What FileVault's own validator says of a package, as builds of AEM projects run it. */
final class Validation {
    private static final ValidationExecutorFactory VALIDATORS =
            new ValidationExecutorFactory(Validation.class.getClassLoader());
    private final ValidationExecutor executor;
    private final Archive archive;
    private final List<String> found = new ArrayList<>();

    private Validation(ValidationExecutor executor, Archive archive) {
        this.executor = executor;
        this.archive = archive;
    }

    /** The errors of a package, each as "validator", the node or file, and the message, with the node types of a file. */
    static List<String> messages(File file, File types) throws Exception {
        ValidatorSettingsImpl settings = new ValidatorSettingsImpl("cnds", types.toURI().toString());
        try (Archive archive = new ZipArchive(file)) {
            archive.open(true);
            ArchiveValidationContext context = new ArchiveValidationContext(
                    archive, file.toPath(), (wanted, places) -> List.of());
            ValidationExecutor executor = VALIDATORS.createValidationExecutor(
                    context, false, false, Map.of("jackrabbit-nodetypes", settings));
            Validation validation = new Validation(executor, archive);
            validation.validateFolder(archive.getRoot(), Path.of(""));
            validation.take(executor.done());
            return validation.found;
        }
    }

    /** The validators rely on parents, and documents, coming first. */
    private void validateFolder(Archive.Entry folder, Path path) throws Exception {
        List<Archive.Entry> entries = new ArrayList<>(folder.getChildren());
        entries.sort(Comparator.comparing((Archive.Entry one) -> !one.getName().equals(Constants.DOT_CONTENT_XML))
                .thenComparing(Archive.Entry::getName));
        for (Archive.Entry entry : entries) {
            Path below = path.resolve(entry.getName());
            if (entry.isDirectory()) {
                validate(null, below);
                validateFolder(entry, below);
            } else {
                try (InputStream in = archive.openInputStream(entry)) {
                    validate(in, below);
                }
            }
        }
    }

    private void validate(InputStream in, Path path) throws Exception {
        for (String top : List.of(Constants.META_INF, Constants.ROOT_DIR)) {
            if (path.startsWith(top) && path.getNameCount() > 1) {
                Path file = path.subpath(1, path.getNameCount());
                if (top.equals(Constants.ROOT_DIR)) {
                    validateContent(in == null ? null : in.readAllBytes(), file, Path.of(top));
                } else {
                    take(executor.validateMetaInf(in, file, Path.of(top)));
                }
            }
        }
    }

    private void validateContent(byte[] content, Path file, Path base) throws Exception {
        Collection<ValidationViolation> violations =
                executor.validateJcrRoot(content == null ? null : new ByteArrayInputStream(content), file, base);
        String root = content == null
                ? null
                : DocViewParser.getDocumentViewXmlRootNodePath(new ByteArrayInputStream(content), file);
        if (root == null) {
            take(violations);
            return;
        }
        // The validator is to check the root of a document against the filter, but takes the first key of a HashMap as
        // the root: one of the document's nodes, depending on their names. Hence the root is checked here.
        // https://github.com/apache/jackrabbit-filevault/blob/jackrabbit-filevault-4.1.4/vault-validation/src/main/java/org/apache/jackrabbit/vault/validation/impl/util/ValidatorDocViewParserHandler.java#L72
        take(violations.stream().filter(one -> !isOfSomeNode(one)).toList());
        JcrPathValidator filter =
                (JcrPathValidator) executor.getAllValidatorsById().get(AdvancedFilterValidatorFactory.ID);
        Collection<ValidationMessage> messages =
                filter.validateJcrPath(new NodeContextImpl(root, file, base), false, true);
        if (messages != null) {
            take(ValidationViolation.wrapMessages(
                    AdvancedFilterValidatorFactory.ID, messages, file, base, root, 0, 0));
        }
    }

    private static boolean isOfSomeNode(ValidationViolation one) {
        return AdvancedFilterValidatorFactory.ID.equals(one.getValidatorId()) && one.getNodePath() == null;
    }

    private void take(Collection<ValidationViolation> violations) {
        for (ValidationViolation one : violations) {
            if (one.getSeverity() == ValidationMessageSeverity.ERROR) {
                String place = one.getNodePath() != null ? one.getNodePath() : String.valueOf(one.getFilePath());
                found.add(one.getValidatorId() + "\t" + place + "\t" + one.getMessage());
            }
        }
    }
}
