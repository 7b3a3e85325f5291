"""Who gets in: as many as there are descriptors for, and the log's own are not among them."""

import socket

import pytest

from headwater.delivery.client import admin
from headwater.delivery.client.cluster import Cluster
from headwater.delivery.client.producer import Producer
from headwater.delivery.server import lifecycle
from headwater.delivery.server.descriptors import Shares
from headwater.testing.broker import EmbeddedBroker


def test_clients_do_not_get_the_descriptors_that_the_log_needs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lifecycle, "share_descriptors", lambda _: Shares(log=16, clients=80))
    crowd: list[socket.socket] = []
    with (
        EmbeddedBroker() as broker,
        Cluster(broker.bootstrap_servers) as cluster,
        Producer(cluster) as producer,
    ):
        admin.create_topic(cluster, "t", partitions=1)
        producer.send("t", b"before")
        producer.flush()
        host, port = broker.bootstrap_servers.split(":")
        try:
            crowd.extend(
                socket.create_connection((host, int(port)), timeout=10) for _ in range(200)
            )
            assert crowd[-1].recv(1) == b""
            producer.send("t", b"beside")
            (delivered,) = producer.flush()
        finally:
            for each in crowd:
                each.close()

    assert delivered.base_offset == 1
