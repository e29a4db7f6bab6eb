"""Every peer in every configuration that is compared."""

from benchmarks.engines import Engine
from benchmarks.environments import BYTEWAX, FLINK, SPARK
from benchmarks.nexmark.queries import QUERIES

_ALL = tuple(QUERIES)
# Structured Streaming's Kafka source is not published for the version of Spark that is compared.
_TOPIC = ("q0", "q1", "q2", "tumbling", "q11")
_SPARK = "benchmarks.peers.structured_streaming"
_FLINK = "benchmarks.peers.flink_sql"

PEERS: tuple[Engine, ...] = (
    Engine(
        "flink-sql-heap", _FLINK, FLINK, _ALL, {"state_backend": "hashmap"}, layout="partitions", topic_queries=_TOPIC
    ),
    Engine(
        "flink-sql-rocksdb",
        _FLINK,
        FLINK,
        _ALL,
        {"state_backend": "rocksdb"},
        layout="partitions",
        topic_queries=_TOPIC,
        only_state=True,
    ),
    Engine("spark-hdfs-store", _SPARK, SPARK, _ALL, {"state_store": "hdfs"}, checkpoints="always"),
    Engine("spark-rocksdb", _SPARK, SPARK, _ALL, {"state_store": "rocksdb"}, checkpoints="always", only_state=True),
    Engine(
        "spark-python-state",
        "benchmarks.peers.spark_python_state",
        SPARK,
        ("tumbling", "q11"),
        {"state_store": "rocksdb", "batch_rows": 100_000},
        checkpoints="always",
        scale=0.05,
    ),
    Engine(
        "flink-python-datastream",
        "benchmarks.peers.flink_datastream",
        FLINK,
        ("tumbling", "q0", "q1", "q2", "q3", "q11"),
        {"state_backend": "hashmap"},
        scale=0.05,
        layout="partitions",
    ),
    Engine("bytewax", "benchmarks.peers.bytewax_flow", BYTEWAX, _ALL, checkpoints="never", scale=0.1),
)
