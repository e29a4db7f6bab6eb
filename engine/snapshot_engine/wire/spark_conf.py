"""Spark settings that the engine owns, and what to use instead of each.

They are refused in ``spec.sparkConf`` rather than overwritten in silence: each of them, set otherwise, breaks
gang scheduling, placement, recovery time or the job's security.
"""

# Keys that end in a dot own everything below them.
OWNED_SPARK_CONF: dict[str, str] = {
    "spark.master": "the engine chooses the master",
    "spark.submit.deployMode": "the driver always runs in client mode in its own pod",
    "spark.app.name": "metadata.name is the application's name",
    "spark.executor.instances": "set spec.executor.instances and spec.executor.standby",
    "spark.executor.cores": "set spec.executor.cores",
    "spark.executor.memory": "set spec.executor.memory, the memory of the whole pod",
    "spark.executor.memoryOverhead": "set spec.executor.memory, the memory of the whole pod",
    "spark.executor.memoryOverheadFactor": "set spec.executor.memory, the memory of the whole pod",
    "spark.executor.pyspark.memory": "set spec.executor.memory, the memory of the whole pod",
    "spark.driver.memory": "set spec.driver.memory, the memory of the whole pod",
    "spark.driver.host": "the driver's address is its service",
    "spark.driver.port": "the driver's ports are fixed",
    "spark.driver.bindAddress": "the driver's address is its service",
    "spark.driver.blockManager.port": "the driver's ports are fixed",
    "spark.blockManager.port": "the ports are fixed",
    "spark.executor.maxNumFailures": "its default would end a long-lived job; recovery is spec.recovery",
    "spark.executor.failuresValidityInterval": "recovery is spec.recovery",
    "spark.task.maxFailures": "the engine restarts regions itself; see spec.recovery",
    "spark.task.cpus": "one slot is one core",
    "spark.stage.maxConsecutiveAttempts": "the engine restarts regions itself; see spec.recovery",
    "spark.locality.wait": "the engine places slots, waiting would delay recovery",
    "spark.locality.wait.": "the engine places slots, waiting would delay recovery",
    "spark.scheduler.minRegisteredResourcesRatio": "the engine waits for executors itself",
    "spark.scheduler.revive.interval": "the engine needs free slots found quickly",
    "spark.excludeOnFailure.": "the engine restarts regions itself; see spec.recovery",
    "spark.python.worker.reuse": "slots are started from the engine's own daemon",
    "spark.python.use.daemon": "slots are started from the engine's own daemon",
    "spark.python.daemon.module": "slots are started from the engine's own daemon",
    "spark.python.task.killTimeout": "the engine needs cancelled slots gone quickly",
    "spark.scheduler.barrier.": "the engine runs regions in barrier mode with settings of its own",
    "spark.dynamicAllocation.": "it does not go with barrier mode; set spec.executor.instances",
    "spark.speculation": "speculation does not go with barrier mode",
    "spark.speculation.": "speculation does not go with barrier mode",
    "spark.authenticate": "authentication is always on, with a secret of the job's own",
    "spark.authenticate.": "authentication is always on, with a secret of the job's own",
    "spark.kubernetes.namespace": "pods run in the StreamingJob's namespace",
    "spark.kubernetes.driver.": "the driver pod is spec.driver, with spec.driver.podTemplate",
    "spark.kubernetes.container.image": "set spec.image",
    "spark.kubernetes.container.image.pullPolicy": "set spec.imagePullPolicy",
    "spark.kubernetes.dynamicAllocation.": "it does not go with barrier mode; set spec.executor.instances",
    "spark.kubernetes.executor.": "executor pods are spec.executor, with spec.executor.podTemplate",
    "spark.kubernetes.authenticate.": "set spec.serviceAccountName",
    "spark.kubernetes.allocation.recoveryMode.enabled": "it would give replacements one task each",
}


def why_refused(key: str) -> str | None:
    """What to use instead of a setting the engine owns; None for a setting that is the user's."""
    for owned, instead in OWNED_SPARK_CONF.items():
        if key == owned or (owned.endswith(".") and key.startswith(owned)):
            return instead
    return None
