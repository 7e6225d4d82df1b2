# What Spark and its operators start in a pod of a bulk build: `driver …` or `executor`. Everything else goes to `mailboat`.
#
# Spark says what there is to do in the environment (docs/kubernetes.md, Bulk builds); nothing is written but to the
# volumes that the pod has.
set -eu

driver() {
    exec "$SPARK_HOME/bin/spark-submit" \
        --deploy-mode client \
        --conf "spark.driver.bindAddress=$SPARK_DRIVER_BIND_ADDRESS" \
        "$@"
}

executor() {
    local options=() number=0 name
    name=SPARK_JAVA_OPT_0
    while [ -n "${!name+said}" ]; do
        options+=("${!name}")
        number=$((number + 1))
        name=SPARK_JAVA_OPT_$number
    done
    exec java ${options[@]+"${options[@]}"} \
        "-Xms$SPARK_EXECUTOR_MEMORY" "-Xmx$SPARK_EXECUTOR_MEMORY" \
        -classpath "${SPARK_CONF_DIR:-/opt/spark/conf}:${SPARK_CLASSPATH:-}:$SPARK_HOME/jars/*" \
        org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
        --driver-url "$SPARK_DRIVER_URL" \
        --app-id "$SPARK_APPLICATION_ID" \
        --executor-id "$SPARK_EXECUTOR_ID" \
        --cores "$SPARK_EXECUTOR_CORES" \
        --hostname "$SPARK_EXECUTOR_POD_IP" \
        --podName "$SPARK_EXECUTOR_POD_NAME" \
        --resourceProfileId "$SPARK_RESOURCE_PROFILE_ID"
}

case "${1-}" in
driver | executor) "$@" ;;
*) exec mailboat "$@" ;;
esac
