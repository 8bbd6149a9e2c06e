"""A worker sees its own card, and those alone that models name as their swap device."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from workshop_gpu.catalogue.spec import Memory
from workshop_gpu.host import worker_process
from workshop_gpu.host.devices import DeviceConfig
from workshop_gpu.host.neighbours import beside, neighbours_of
from workshop_gpu.host.worker_process import WorkerProcess

CARDS = tuple(DeviceConfig(f"cuda:{n}", "H100", f"GPU-{n}", 80) for n in range(3))
CPU = DeviceConfig("cpu:3", "CPU", "", 80)


def catalogue_with(*swap_devices: str) -> Any:
    specs = [SimpleNamespace(memory=Memory(swap_device=name)) for name in swap_devices]
    return SimpleNamespace(specs=specs)


def test_only_what_models_name_is_seen_and_only_by_devices_of_its_kind() -> None:
    devices = (*CARDS, CPU)
    assert neighbours_of(CARDS[0], devices, catalogue_with("", "cpu")) == {}
    named = catalogue_with("", "cuda:1", "cpu:3", "cuda:7")
    assert neighbours_of(CARDS[0], devices, named) == {"cuda:1": "GPU-1"}
    assert neighbours_of(CARDS[1], devices, named) == {}
    assert neighbours_of(CPU, devices, named) == {}


def test_a_workers_own_card_is_the_first_that_it_sees(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[tuple[Any, dict[str, str]]] = []

    async def no_process(*command: str, env: dict[str, str], **_: Any) -> Any:
        started.append((command, env))
        return SimpleNamespace(pid=1)

    monkeypatch.setattr(worker_process.asyncio, "create_subprocess_exec", no_process)

    async def scenario() -> None:
        named = catalogue_with("cuda:0")
        start = beside(CARDS, named, WorkerProcess.start)
        for card in CARDS[:2]:
            worker = await start(card, tmp_path, 0)
            worker._channel.close()

    asyncio.run(scenario())
    (alone, its), (both, their) = started
    assert its["CUDA_VISIBLE_DEVICES"] == "GPU-0"
    assert "--neighbours" not in alone
    assert their["CUDA_VISIBLE_DEVICES"] == "GPU-1,GPU-0"
    assert both[both.index("--neighbours") + 1] == "cuda:0"
