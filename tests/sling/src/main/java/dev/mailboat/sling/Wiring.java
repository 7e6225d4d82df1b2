package dev.mailboat.sling;

import java.lang.reflect.Field;
import java.lang.reflect.Proxy;
import java.util.Map;
import org.osgi.util.converter.Converters;

/** What OSGi does for the original's components: references, configurations, and services that nobody asks anything. */
final class Wiring {
    private Wiring() {}

    /** The component with its references set, by the names of its fields. */
    static <T> T with(T component, Map<String, Object> references) {
        references.forEach((name, value) -> set(component.getClass(), component, name, value));
        return component;
    }

    /** Set a field that OSGi, or a test of the original, would set. */
    static void set(Class<?> type, Object component, String name, Object value) {
        try {
            Field field = type.getDeclaredField(name);
            field.setAccessible(true);
            field.set(component, value);
        } catch (ReflectiveOperationException error) {
            throw new IllegalStateException(error);
        }
    }

    /** A configuration: what is given, and the defaults of its annotation. */
    static <T> T configuration(Class<T> type, Map<String, Object> values) {
        return Converters.standardConverter().convert(values).to(type);
    }

    /** A service whose methods do nothing and return 0, false, null, or again such a service. */
    static <T> T idle(Class<T> type) {
        return type.cast(Proxy.newProxyInstance(type.getClassLoader(), new Class<?>[] {type}, (self, method, arguments) -> {
            switch (method.getName()) {
                case "equals":
                    return self == arguments[0];
                case "hashCode":
                    return System.identityHashCode(self);
                case "toString":
                    return type.getSimpleName();
                default:
                    return idleAnswer(method.getReturnType());
            }
        }));
    }

    private static Object idleAnswer(Class<?> type) {
        if (type == boolean.class) {
            return false;
        }
        if (type.isPrimitive()) {
            return type == long.class ? (Object) 0L : type == double.class ? (Object) 0.0 : type == void.class ? null : 0;
        }
        return type.isInterface() && type.getName().startsWith("org.apache.sling.commons.metrics") ? idle(type) : null;
    }
}
