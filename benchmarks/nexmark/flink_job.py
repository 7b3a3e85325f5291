"""Runs queries in PyFlink, one for each line that it is given, and says how long each took.

This file alone decides how Flink is set up: two slots, RocksDB, exactly-once checkpoints, and small
batches of input as the published Nexmark runs have them. It is run by the interpreter of PyFlink's
virtual environment, and imports nothing of the project.

A line is a JSON object: `tables` (statements that must have been run), `answer` (a query),
`columns` (names and types of its answer) and `sink` ("blackhole", or "files" for changes as
Debezium writes them). The answer is `{"took_s"}`, or `{"error"}`.
"""

import json
import shutil
import sys
from pathlib import Path

from pyflink.table import (  # type: ignore[import-not-found]
    EnvironmentSettings,
    TableEnvironment,
)

_SETTINGS = {
    "parallelism.default": "2",
    "taskmanager.numberOfTaskSlots": "2",
    "taskmanager.memory.managed.size": "512m",
    "taskmanager.memory.network.max": "256m",
    "table.local-time-zone": "UTC",
    "state.backend.type": "rocksdb",
    "execution.checkpointing.incremental": "true",
    "execution.checkpointing.interval": "10 s",
    "execution.checkpointing.mode": "EXACTLY_ONCE",
    "table.exec.mini-batch.enabled": "true",
    "table.exec.mini-batch.allow-latency": "2 s",
    "table.exec.mini-batch.size": "50000",
    "table.optimizer.distinct-agg.split.enabled": "true",
}


def main() -> None:
    """Answer lines until there are no more."""
    folder = Path(sys.argv[1])
    jars = sys.argv[2:]
    seen: dict[str, TableEnvironment] = {}
    for line in sys.stdin:
        request = json.loads(line)
        key = json.dumps(request["tables"])
        try:
            if key not in seen:
                seen[key] = _environment(folder, jars, request["tables"])
            reply: dict[str, object] = {"took_s": _run(seen[key], request, folder)}
        except Exception as error:  # noqa: BLE001 - whatever it is, the other side has to be told
            reply = {"error": str(error)[-3000:]}
        print(json.dumps(reply), flush=True)


def _environment(folder: Path, jars: list[str], tables: list[str]) -> TableEnvironment:
    environment = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    config = environment.get_config()
    for name, value in _SETTINGS.items():
        config.set(name, value)
    config.set("execution.checkpointing.dir", (folder / "checkpoints").as_uri())
    config.set("pipeline.jars", ";".join(jars))
    for statement in tables:
        environment.execute_sql(statement)
    return environment


def _run(environment: TableEnvironment, request: dict[str, object], folder: Path) -> float:
    columns = ", ".join(f"`{name}` {kind}" for name, kind in request["columns"])  # type: ignore[attr-defined]
    options = "'connector' = 'blackhole'"
    if request["sink"] == "files":
        path = (folder / "answer").as_uri()
        options = (
            f"'connector' = 'filesystem', 'path' = '{path}', 'format' = 'debezium-json', "
            "'debezium-json.encode.decimal-as-plain-number' = 'true'"
        )
    environment.execute_sql("DROP TABLE IF EXISTS answer")
    environment.execute_sql(f"CREATE TABLE answer ({columns}) WITH ({options})")
    statements = environment.create_statement_set()
    statements.add_insert_sql(f"INSERT INTO answer {request['answer']}")
    client = statements.execute().get_job_client()
    took_ms = client.get_job_execution_result().result().get_net_runtime()
    shutil.rmtree(folder / "checkpoints", ignore_errors=True)
    return float(took_ms) / 1000


if __name__ == "__main__":
    main()
