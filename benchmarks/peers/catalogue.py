"""Every peer in every configuration that is compared."""

from benchmarks.engines import Engine
from benchmarks.environments import BYTEWAX, FLINK, SPARK
from benchmarks.nexmark.queries import QUERIES

_ALL = tuple(QUERIES)
_SPARK = "benchmarks.peers.structured_streaming"
_FLINK = "benchmarks.peers.flink_sql"

PEERS: tuple[Engine, ...] = (
    Engine("flink-sql-heap", _FLINK, FLINK, _ALL, {"state_backend": "hashmap"}),
    Engine("flink-sql-rocksdb", _FLINK, FLINK, _ALL, {"state_backend": "rocksdb"}),
    Engine("spark-hdfs-store", _SPARK, SPARK, _ALL, {"state_store": "hdfs"}, checkpoints="always"),
    Engine("spark-rocksdb", _SPARK, SPARK, _ALL, {"state_store": "rocksdb"}, checkpoints="always"),
)
