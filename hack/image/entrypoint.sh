#!/bin/bash
# operator | driver | executor, each with its arguments; anything else is run as it is.
set -euo pipefail

# An arbitrary user id has no entry in /etc/passwd, and the JVM's login fails without one. The entry is given
# through a library that reads a file of ours, because the root file system may be read-only.
give_the_user_a_name() {
  if getent passwd "$(id -u)" > /dev/null; then return; fi
  local folder
  folder=$(mktemp -d)
  cp /etc/passwd "$folder/passwd"
  cp /etc/group "$folder/group"
  echo "streamingjob:x:$(id -u):$(id -g)::/tmp:/usr/sbin/nologin" >> "$folder/passwd"
  export NSS_WRAPPER_PASSWD="$folder/passwd" NSS_WRAPPER_GROUP="$folder/group"
  export LD_PRELOAD="libnss_wrapper.so${LD_PRELOAD:+:$LD_PRELOAD}"
}

# Numba does not use a cache that it cannot write to.
make_the_kernel_cache_writable() {
  if [ -w "$NUMBA_CACHE_DIR" ]; then return; fi
  local copy
  copy=$(mktemp -d)
  cp -r --preserve=timestamps "$NUMBA_CACHE_DIR/." "$copy"
  export NUMBA_CACHE_DIR=$copy
}

# SPARK_JAVA_OPT_0, SPARK_JAVA_OPT_1, …: one option each, in the order of their numbers.
read_java_options() {
  JAVA_OPTIONS=()
  local name
  while read -r name; do
    JAVA_OPTIONS+=("${!name}")
  done < <(compgen -v SPARK_JAVA_OPT_ | sort -t_ -k4 -n)
}

require_environment() {
  local name
  for name in "$@"; do
    if [ -z "${!name:-}" ]; then
      echo "entrypoint: executor needs $name, which Spark's Kubernetes backend sets; is this pod Spark's?" >&2
      exit 64
    fi
  done
}

# What Spark's Kubernetes backend expects of an image that it starts with the one argument `executor`.
run_executor() {
  require_environment SPARK_DRIVER_URL SPARK_EXECUTOR_ID SPARK_EXECUTOR_CORES SPARK_EXECUTOR_MEMORY \
    SPARK_APPLICATION_ID SPARK_EXECUTOR_POD_IP SPARK_EXECUTOR_POD_NAME SPARK_RESOURCE_PROFILE_ID
  read_java_options
  local configuration=${SPARK_CONF_DIR:-$SPARK_HOME/conf}
  local classes="$configuration:$SPARK_HOME/jars/*${SPARK_EXTRA_CLASSPATH:+:$SPARK_EXTRA_CLASSPATH}"
  # A secret for Spark's connections is read from a file only by a process that knows its master to be Kubernetes.
  exec java "${JAVA_OPTIONS[@]}" -Dspark.master=k8s://https://kubernetes.default.svc "-Xms$SPARK_EXECUTOR_MEMORY" "-Xmx$SPARK_EXECUTOR_MEMORY" -cp "$classes" \
    org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
    --driver-url "$SPARK_DRIVER_URL" \
    --executor-id "$SPARK_EXECUTOR_ID" \
    --cores "$SPARK_EXECUTOR_CORES" \
    --app-id "$SPARK_APPLICATION_ID" \
    --hostname "$SPARK_EXECUTOR_POD_IP" \
    --resourceProfileId "$SPARK_RESOURCE_PROFILE_ID" \
    --podName "$SPARK_EXECUTOR_POD_NAME"
}

give_the_user_a_name
make_the_kernel_cache_writable
case "${1:-operator}" in
  operator) shift || true; exec streamingjob-operator "$@" ;;
  driver) shift; exec streamingjob driver "$@" ;;
  executor) run_executor ;;
  *) exec "$@" ;;
esac
