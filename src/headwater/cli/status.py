"""`headwater status`: what a cluster holds, at a glance.

This file alone decides what belongs to a glance. Everything is asked over the Kafka protocol;
what only this machine knows (pid, age) is added for a broker that runs on it.
"""

import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import click

from headwater.base.settings.places import DEFAULT_DATA
from headwater.cli import output, run_file
from headwater.cli.options import Session, examples, with_session
from headwater.cli.supervisor import read_supervised, supervised_text
from headwater.delivery.client import admin, enabled

_ESTABLISHED = "01"


@click.command(epilog=examples("headwater status", "headwater status -b kafka:9092 --json"))
@click.option("--data", metavar="DIR", default=DEFAULT_DATA, show_default=True)
@with_session
def status(*, session: Session, data: str) -> None:
    """Show the brokers, how much they hold, and what is enabled."""
    running = run_file.find(data)
    if running is not None:
        session.prefer(running.address)
    cluster = session.cluster
    topics = cluster.topics()
    sizes = admin.log_sizes(cluster)
    groups = Counter(admin.list_groups(cluster).values())
    features = enabled.finalized_features(cluster)
    transactions = enabled.transactions_by_state(cluster)
    quotas = enabled.quota_count(cluster)
    compaction = enabled.compaction(cluster)
    shown = [topic for topic in topics.values() if not topic.internal]
    if running is not None and running.address not in _addresses(session):
        running = None
    facts = {
        "cluster": cluster.cluster_id,
        "brokers": _addresses(session),
        "pid": running.pid if running else None,
        "up_ms": time.time_ns() // 1_000_000 - running.started_ms if running else None,
        "connections": _connections(running),
        "topics": len(shown),
        "internal_topics": len(topics) - len(shown),
        "partitions": sum(len(topic.partitions) for topic in topics.values()),
        "bytes": sum(sizes.values()),
        "groups": sum(groups.values()),
        "groups_by_state": dict(groups),
        "features": features,
        "transactions_by_state": transactions,
        "quotas": quotas,
        "compaction": compaction._asdict(),
        "pipelines": read_supervised(data) if running else [],
    }
    if session.as_json:
        output.document(facts)
        return
    shown_facts: dict[str, output.Cell] = {
        "cluster": cluster.cluster_id,
        "brokers": ", ".join(_addresses(session)),
    }
    if running is not None:
        age = output.duration_text(time.time_ns() // 1_000_000 - running.started_ms)
        shown_facts["process"] = f"pid {running.pid}, up for {age}, data in {data}"
        connections = _connections(running)
        if connections is not None:
            shown_facts["connections"] = connections
    shown_facts |= {
        "topics": f"{len(shown)} (and {len(topics) - len(shown)} internal)",
        "partitions": sum(len(topic.partitions) for topic in topics.values()),
        "size": output.bytes_text(sum(sizes.values())),
        "groups": _counted(groups),
    }
    if transactions is not None:
        shown_facts["transactional ids"] = _counted(transactions)
    if quotas is not None:
        shown_facts["quotas"] = quotas
    state = "on" if compaction.enabled else "off"
    asking = "1 topic asks" if compaction.topics == 1 else f"{compaction.topics:,} topics ask"
    shown_facts["compaction"] = f"{state}, {asking} for it (internal ones always do)"
    if features:
        shown_facts["features"] = ", ".join(f"{name} {level}" for name, level in features.items())
    for each in read_supervised(data) if running else []:
        shown_facts[f"pipeline {each['name']}"] = supervised_text(each)
    output.facts(shown_facts)


def _counted(states: Mapping[str, int]) -> str:
    detail = ", ".join(f"{number} {state}" for state, number in sorted(states.items()))
    return f"{sum(states.values())}" + (f" ({detail})" if detail else "")


def _addresses(session: Session) -> list[str]:
    return [f"{host}:{port}" for host, port in session.cluster.brokers.values()]


def _connections(running: run_file.Running | None) -> int | None:
    """Count the broker's clients, this one left out; only Linux tells, in its table of sockets."""
    if running is None:
        return None
    port = int(running.address.rpartition(":")[2])
    found = 0
    for name in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            lines = Path(name).read_text(encoding="ascii").splitlines()[1:]
        except OSError:
            return None
        for line in lines:
            _, local, _, state, *_ = line.split()
            found += state == _ESTABLISHED and int(local.rpartition(":")[2], 16) == port
    return max(0, found - 1)
