"""Runs inside a driver pod: asks Spark's Kubernetes backend for executors and runs a barrier-mode job across them.

Prints one JSON line: the hosts and the messages that each task got from all the others.
"""

import json
import os
import socket
import time

from pyspark import BarrierTaskContext
from pyspark.sql import SparkSession

EXECUTORS = 2


def meet(_rows):
    context = BarrierTaskContext.get()
    yield context.allGather(f"{context.partitionId()}@{socket.gethostbyname(socket.gethostname())}")


def session():
    settings = {
        "spark.master": "k8s://https://kubernetes.default.svc",
        "spark.submit.deployMode": "client",
        "spark.kubernetes.namespace": os.environ["POD_NAMESPACE"],
        "spark.kubernetes.driver.pod.name": os.environ["POD_NAME"],
        "spark.kubernetes.container.image": os.environ["IMAGE"],
        "spark.kubernetes.executor.request.cores": "100m",
        "spark.executor.instances": str(EXECUTORS),
        "spark.executor.cores": "1",
        "spark.executor.memory": "512m",
        "spark.driver.host": os.environ["DRIVER_HOST"],
        "spark.driver.bindAddress": os.environ["POD_IP"],  # executors are told this address, not the host's name
        "spark.driver.port": "7078",
        "spark.blockManager.port": "7079",
        "spark.ui.enabled": "false",
        "spark.kubernetes.executor.deleteOnTermination": "false",  # a failed one stays, as evidence
    }
    builder = SparkSession.builder.appName("barrier")
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def wait_for_executors(spark):
    """With few of them registered, Spark refuses a barrier job."""
    deadline = time.monotonic() + 240
    while len(spark.sparkContext._jsc.sc().statusTracker().getExecutorInfos()) <= EXECUTORS:
        if time.monotonic() > deadline:
            raise TimeoutError("the executors did not come")
        time.sleep(0.2)


def main():
    started = time.monotonic()
    spark = session()
    wait_for_executors(spark)
    registered = time.monotonic()
    gathered = spark.sparkContext.parallelize(range(EXECUTORS), EXECUTORS).barrier().mapPartitions(meet).collect()
    ended = time.monotonic()
    figures = {"executors_after": round(registered - started, 1), "barrier_job_took": round(ended - registered, 1)}
    print("RESULT " + json.dumps({"gathered": gathered, **figures}))
    spark.stop()


if __name__ == "__main__":
    main()
