import pytest

from workshop_gpu.conductor.errors import InvalidRequest
from workshop_gpu.host import gpu_readings
from workshop_gpu.host.devices import find_devices, parse_size
from workshop_gpu.host.gpu_readings import GPU

TWO_CARDS = [
    GPU(index=0, uuid="GPU-a", name="H100", total_bytes=80, used_bytes=1),
    GPU(index=1, uuid="GPU-b", name="H100", total_bytes=80, used_bytes=1),
]


@pytest.fixture(autouse=True)
def all_cards_are_ours(monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


@pytest.fixture
def two_cards(monkeypatch):
    monkeypatch.setattr(gpu_readings, "gpus", lambda: TWO_CARDS)


@pytest.fixture
def no_cards(monkeypatch):
    monkeypatch.setattr(gpu_readings, "gpus", lambda: [])


def test_auto_takes_every_card(two_cards):
    assert [(d.id, d.gpu_uuid, d.torch_device) for d in find_devices(["auto"])] == [
        ("cuda:0", "GPU-a", "cuda"),
        ("cuda:1", "GPU-b", "cuda"),
    ]


@pytest.mark.parametrize("variable", ["1", "GPU-b", " 1 ,"])
def test_only_the_cards_that_a_batch_system_left_to_us_are_used(two_cards, monkeypatch, variable):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", variable)
    assert [device.id for device in find_devices(["auto"])] == ["cuda:1"]
    with pytest.raises(InvalidRequest):
        find_devices(["cuda:0"])


def test_an_empty_list_of_visible_cards_means_the_cpu(two_cards, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert [device.id for device in find_devices(["auto"])] == ["cpu:0"]


def test_auto_falls_back_to_the_cpu_with_a_part_of_its_memory(no_cards):
    [cpu] = find_devices(["auto"])
    assert (cpu.id, cpu.torch_device) == ("cpu:0", "cpu")
    assert cpu.total_bytes > 0


def test_two_pretended_devices_get_names_of_their_own(no_cards):
    devices = find_devices(["cpu:2GB", "cpu:500MB"])
    assert [(d.id, d.total_bytes) for d in devices] == [("cpu:0", 2 * 10**9), ("cpu:1", 5 * 10**8)]


@pytest.mark.parametrize(
    "wanted",
    [
        ["cuda:7"],
        ["tpu"],
        ["cpu:lots"],
        ["cpu:0GB"],
        ["cpu:" + "9" * 400],
        [],
        ["cuda:0", "cuda:0"],
    ],
)
def test_a_device_that_makes_no_sense_is_refused(two_cards, wanted):
    with pytest.raises(InvalidRequest):
        find_devices(wanted)


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [("2GB", 2 * 10**9), ("1.5 GiB", 3 * 2**29), ("300mb", 3 * 10**8), ("1024", 1024)],
)
def test_sizes_are_read_as_people_write_them(text, size_bytes):
    assert parse_size(text) == size_bytes
