"""Which devices this server uses: "auto", "cuda:0", "cpu:2GB"."""

import os
import re

import msgspec
import psutil

from workshop_gpu.conductor.errors import InvalidRequest
from workshop_gpu.host import gpu_readings
from workshop_gpu.host.gpu_readings import GPU

_UNITS = {"": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}
_SIZE = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([KMG]?I?B?)\s*", re.IGNORECASE)
_MOST_DIGITS = 20
_CPU_SHARE_OF_RAM = 0.5
"""How much of the machine's memory a cpu device without a size may fill."""


class DeviceConfig(msgspec.Struct, frozen=True):
    """A device to start a worker for. `id` is its name everywhere ("cuda:0", "cpu:0").

    `gpu_uuid` selects the card for the worker process ("" for cpu). `total_bytes` is the card's
    memory, or the size that a cpu device pretends to have.
    """

    id: str
    name: str
    gpu_uuid: str
    total_bytes: int
    most_bytes: int = 0
    """What of it may be used (0: all)."""
    neighbours: dict[str, str] = {}
    """Other devices whose memory its worker may use, with their cards, by their ids."""

    @property
    def torch_device(self) -> str:
        return "cuda" if self.gpu_uuid else "cpu"


def parse_size(text: str) -> int:
    """Bytes of "2GB", "500 MB", "1.5GiB" or a plain number."""
    match = _SIZE.fullmatch(text)
    unit = match[2].upper() if match else "?"
    if match is None or unit not in _UNITS or len(match[1]) > _MOST_DIGITS or not float(match[1]):
        raise InvalidRequest("size", f'"{text}" is not a size; write it like "2GB" or "500MB"')
    return int(float(match[1]) * _UNITS[unit])


def find_devices(wanted: list[str]) -> list[DeviceConfig]:
    """The devices for the names in the configuration; "auto" means every GPU, else the CPU.

    Raises InvalidRequest for a name that makes no sense or a card that is not there.
    """
    cards = _visible(gpu_readings.gpus(), os.environ.get("CUDA_VISIBLE_DEVICES"))
    found: list[DeviceConfig] = []
    for entry in wanted:
        kind, _, rest = entry.partition(":")
        if entry == "auto":
            found += [_card(card) for card in cards] or [_cpu(len(found), "")]
        elif kind == "cuda":
            by_index = {str(card.index): card for card in cards}
            if rest not in by_index:
                there = ", ".join(f"cuda:{index}" for index in by_index) or '"cpu"; there is no GPU'
                raise InvalidRequest("devices", f'no GPU "{entry}" here; write {there}')
            found.append(_card(by_index[rest]))
        elif kind == "cpu":
            found.append(_cpu(len(found), rest))
        else:
            raise InvalidRequest(
                "devices", f'"{entry}" is no device; write "auto", "cuda:0" or "cpu:2GB"'
            )
    ids = [device.id for device in found]
    if len(set(ids)) != len(ids):
        raise InvalidRequest("devices", f"name each device once, not {', '.join(ids)}")
    if not found:
        raise InvalidRequest("devices", 'the list is empty; write "auto" to use what is there')
    return found


def with_cap(device: DeviceConfig, most_bytes: int) -> DeviceConfig:
    """The device as if it had no more memory than this (0: no cap)."""
    if not most_bytes:
        return device
    return msgspec.structs.replace(device, most_bytes=most_bytes)


def _visible(cards: list[GPU], variable: str | None) -> list[GPU]:
    """The cards that CUDA_VISIBLE_DEVICES leaves to this process, by index or by UUID.

    A batch system gives a job some of a machine's cards in this way; the others are not ours.
    """
    if variable is None:
        return cards
    names = [name.strip() for name in variable.split(",") if name.strip()]
    return [
        card
        for card in cards
        if any(name == str(card.index) or card.uuid.startswith(name) for name in names)
    ]


def _card(card: GPU) -> DeviceConfig:
    return DeviceConfig(f"cuda:{card.index}", card.name, card.uuid, card.total_bytes)


def _cpu(number: int, size: str) -> DeviceConfig:
    total_bytes = (
        parse_size(size) if size else int(psutil.virtual_memory().total * _CPU_SHARE_OF_RAM)
    )
    return DeviceConfig(f"cpu:{number}", "CPU", "", total_bytes)
