"""Nothing that a broker had put off happens once it is stopped."""

import asyncio
from pathlib import Path

import pytest

from headwater.base.chance import SystemChance
from headwater.base.clock import SystemClock
from headwater.base.disk import RealDisk
from headwater.base.settings import BrokerSettings
from headwater.delivery.broker import broker
from headwater.delivery.server.lifecycle import start_node


def test_no_timer_writes_behind_the_marker_of_a_clean_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker, "_UPKEEP_INTERVAL_MS", 1)
    ran: list[str] = []

    async def stop_and_wait() -> None:
        node = await start_node(
            disk=RealDisk(),
            data_directory=str(tmp_path),
            settings=BrokerSettings(),
            clock=SystemClock(),
            chance=SystemChance(),
            listen=("127.0.0.1", 0),
        )
        late = asyncio.Event()
        node.broker.timers.after(1, late.set)
        await asyncio.wait_for(late.wait(), 10)
        await node.stop()
        monkeypatch.setattr(node.broker.store, "work_due", lambda _: ran.append("upkeep"))
        node.broker.timers.after(0, lambda: ran.append("another"))
        # Later than all that was put off above: timers of one loop run in their order.
        over = asyncio.Event()
        asyncio.get_running_loop().call_later(0.05, over.set)
        await over.wait()

    asyncio.run(stop_and_wait())
    assert ran == []
