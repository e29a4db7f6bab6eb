"""What the Kafka source and sink have in common. The client library is an extra: `streamingjob[kafka]`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

ASK_SECONDS = 15.0
"""How long a question to the brokers may take before it counts as unanswered."""


class KafkaUnavailable(ConnectionError):
    """The brokers did not answer. Trying again may help."""


def client_library() -> Any:
    try:
        import confluent_kafka
    except ImportError as error:
        raise ImportError(
            "the Kafka connectors need the package confluent-kafka: pip install 'streamingjob[kafka]'"
        ) from error
    return confluent_kafka


def client_settings(servers: str, options: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """`own` is what exactly-once rests on: options that say otherwise are refused."""
    clash = sorted(name for name in options if name in own and options[name] != own[name])
    if clash:
        raise ValueError(f"the connector itself sets {', '.join(clash)}: leave it out of `options`")
    return {"bootstrap.servers": servers, "log_level": 3, **options, **own}


def count_partitions(client: Any, servers: str, topic: str) -> int:
    """Raises LookupError if there is no such topic."""
    kafka = client_library()
    try:
        found = client.list_topics(topic, timeout=ASK_SECONDS).topics[topic]
    except kafka.KafkaException as error:
        raise KafkaUnavailable(f"the Kafka brokers {servers} cannot be asked about topic {topic!r}: {error}") from error
    if found.error is not None:
        raise LookupError(f"topic {topic!r} at {servers}: {found.error}. Expected a topic that exists")
    return len(found.partitions)


def produce(producer: Any, topic: str, key: bytes | None, value: bytes, delivered: Any) -> None:
    """Waits while the client's queue is full."""
    while True:
        try:
            producer.produce(topic, value=value, key=key, on_delivery=delivered)
            return
        except BufferError:
            producer.poll(0.1)
