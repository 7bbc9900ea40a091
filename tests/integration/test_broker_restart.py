"""A lone broker that dies in the middle of a transaction and starts again on the same data."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from dev.broker import LocalKafka
from schemas.topics import Topics, catalogue
from streams.transport.kafka.log import KafkaLog
from streams.transport.log import Isolation, Outgoing, TopicPartition
from tests.waiting import wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

READABLE_SEC = 60.0


@pytest.mark.timeout(240)
def test_a_transaction_open_at_a_crash_of_the_broker_ends_with_the_next_writer(tmp_path: Path) -> None:
    """The broker finds it over its time-out while its own former session still runs, and knows no leader yet:
    whoever ends it must not leave out its marker."""
    topics = Topics("test-restart")
    events = TopicPartition(topics.events, 0)
    writer_id = f"{topics.namespace}.p0.0"
    with (
        LocalKafka(tmp_path) as broker,
        closing(KafkaLog(broker.bootstrap, transaction_timeout_ms=1_000)) as log,
    ):
        log.create_topics(catalogue(topics.namespace, 1, 1))
        writer = log.transactional_writer(writer_id)
        writer.begin()
        writer.send([Outgoing(*events, b"job:acme/open", b"never seen")])
        wait_until(lambda: log.end_offset(events, Isolation.UNCOMMITTED) == 1)
        broker.kill()
        broker.start()
        writer.close()
        log.transactional_writer(writer_id).close()

        with closing(log.reader(Isolation.COMMITTED)) as reader:
            reader.assign({events: 0})
            # Past the record and its marker: nothing holds readers back.
            wait_until(lambda: not reader.poll(10, 0.1) and reader.position(events) == 2, READABLE_SEC)
        assert "these partitions are likely deleted already" not in broker.log.read_text()
