"""Records and the note that they were sent, in one Kafka transaction."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from snapshot_engine.connectors.kafka_client import (
    ASK_SECONDS,
    KafkaUnavailable,
    client_library,
    client_settings,
    produce,
)

_TRANSACTION_MS = 120_000
"""Readers of committed records wait this long at most for the transaction of a committer that died, if no other
committer comes before."""


class Transactions:
    """For one sink of one job, in the process that commits. `name` is its transactional id.

    How many files a writer has sent is kept as the offset that group `<name>.<writer>` has committed for partition 0.
    """

    def __init__(self, servers: str, topic: str, name: str, options: Mapping[str, Any]) -> None:
        self._servers = servers
        self._topic = topic
        self._name = name
        self._options = dict(options)
        self._producer: Any = None
        self._groups: dict[str, Any] = {}

    def not_yet_sent(self, writers: Collection[str]) -> dict[str, int]:
        """For each writer, the number of its first file that no transaction has sent.

        Opens the transactional id first: after that, no other committer has a transaction that could still commit.
        """
        kafka = client_library()
        try:
            self._open()
            self._close_groups(set(self._groups) - set(writers))
            return {writer: self._sent(writer) for writer in writers}
        except kafka.KafkaException as error:
            self._give_up()
            raise KafkaUnavailable(f"topic {self._topic!r} at {self._servers}: {error}") from error

    def send(self, records: Iterable[tuple[bytes | None, bytes]], sent: Mapping[str, int]) -> None:
        """All records and the new counts of files, or nothing."""
        kafka = client_library()
        failed: list[Any] = []

        def delivered(error: Any, _: Any) -> None:
            if error is not None:
                failed.append(error)

        try:
            self._producer.begin_transaction()
            for key, value in records:
                produce(self._producer, self._topic, key, value, delivered)
            for writer, count in sent.items():
                offsets = [kafka.TopicPartition(self._topic, 0, count)]
                self._producer.send_offsets_to_transaction(offsets, self._group(writer).consumer_group_metadata())
            self._producer.commit_transaction()
        except kafka.KafkaException as error:
            self._give_up()
            why = f": {failed[0]}" if failed else ""
            raise KafkaUnavailable(f"topic {self._topic!r} at {self._servers}: {error}{why}") from error
        except BaseException:
            self._give_up()
            raise

    def _open(self) -> None:
        if self._producer is None:
            own = {"transactional.id": self._name, "transaction.timeout.ms": _TRANSACTION_MS}
            self._producer = client_library().Producer(client_settings(self._servers, self._options, own))
            self._producer.init_transactions(ASK_SECONDS)

    def _sent(self, writer: str) -> int:
        asked = [client_library().TopicPartition(self._topic, 0)]
        found = self._group(writer).committed(asked, timeout=ASK_SECONDS)[0]
        if found.error is not None:
            raise client_library().KafkaException(found.error)
        return max(0, int(found.offset))

    def _group(self, writer: str) -> Any:
        if writer not in self._groups:
            own = {
                "group.id": f"{self._name}.{writer}",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
            }
            self._groups[writer] = client_library().Consumer(client_settings(self._servers, self._options, own))
        return self._groups[writer]

    def _give_up(self) -> None:
        """The next call begins with a new producer, which aborts what this one left open."""
        self._producer = None
        self._close_groups(set(self._groups))

    def _close_groups(self, writers: Iterable[str]) -> None:
        for writer in writers:
            self._groups.pop(writer).close()
