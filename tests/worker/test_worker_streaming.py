"""Streaming alone: which blocks come, in which order, and what a failure leaves."""

from typing import Any

import pytest

from tests.worker.streamed_nets import streamed, units_in_host_memory

SIDE = 8


def network(blocks: int = 5) -> Any:
    """A net whose blocks run in another order than they are defined in."""
    import torch

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = torch.nn.Linear(SIDE, SIDE)
            self.blocks = torch.nn.ModuleList(torch.nn.Linear(SIDE, SIDE) for _ in range(blocks))
            self.stumbles_at = -1

        def forward(self, values: Any) -> Any:
            values = self.first(values)
            for number in reversed(range(blocks)):
                if number == self.stumbles_at:
                    raise RuntimeError("stumbled")
                values = torch.tanh(self.blocks[number](values))
            return values

    torch.manual_seed(0)
    return Net().eval()


LAYER_BYTES = 2 * 256
"""A matrix and a bias, each at a multiple of 256."""


def deep_network() -> Any:
    """A net of two blocks with four layers each, which run in another order than they lie."""
    import torch

    class Deep(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.blocks = torch.nn.ModuleList(Four() for _ in range(2))

        def forward(self, values: Any) -> Any:
            for block in self.blocks:
                values = block(values)
            return values

    class Four(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a = torch.nn.Linear(SIDE, SIDE)
            self.b = torch.nn.Linear(SIDE, SIDE)
            self.c = torch.nn.Linear(SIDE, SIDE)
            self.d = torch.nn.Linear(SIDE, SIDE)

        def forward(self, values: Any) -> Any:
            for layer in (self.a, self.c, self.b, self.d):
                values = torch.tanh(layer(values))
            return values

    torch.manual_seed(0)
    return Deep().eval()


def output(net: Any) -> Any:
    import torch

    with torch.inference_mode():
        return net(torch.linspace(-1, 1, SIDE).repeat(2, 1))


@pytest.mark.parametrize(
    ("sizes", "wanted_bytes", "numbers"),
    [
        ([10, 10, 10, 10], 20, [0, 2]),
        ([10, 10, 10, 10], 1, [0]),
        ([10, 10, 10, 10], 11, [0, 3]),
        ([10, 10, 10, 10], 400, [0, 1, 2, 3]),
        ([1, 1, 100, 1, 1], 3, [0, 2]),
        ([10, 10, 10], 0, []),
        ([], 5, []),
    ],
)
def test_blocks_are_chosen_evenly_and_never_too_few(
    sizes: list[int], wanted_bytes: int, numbers: list[int]
) -> None:
    from workshop_gpu.worker.streaming import chosen

    assert chosen(sizes, wanted_bytes) == numbers


@pytest.mark.parametrize("buffers", [1, 2, 3, 9])
def test_the_order_is_learned_and_then_nothing_comes_too_late(
    buffers: int,
) -> None:
    import torch

    net = network()
    expected = output(net)
    rotation, lane = streamed(net, buffers=buffers)
    for _ in range(2):  # in the second one the way from the last block to the first is learned
        assert torch.equal(output(net), expected)
    lane.copies = 0
    asked_for_in_vain = []
    fetch = rotation._fetch
    rotation._fetch = lambda unit, keep: asked_for_in_vain.append(not keep) or fetch(unit, keep)
    for _ in range(3):
        assert torch.equal(output(net), expected)
    blocks = len(net.blocks)
    assert not any(asked_for_in_vain)
    assert lane.copies == (0 if buffers >= blocks else 3 * blocks), "each block comes once a pass"


def test_a_pass_that_broke_off_leaves_nothing_that_the_next_one_sees() -> None:
    import torch

    net = network()
    expected = output(net)
    rotation, _ = streamed(net)
    for stumble in range(5):
        net.stumbles_at = stumble
        with pytest.raises(RuntimeError, match="stumbled"):
            output(net)
        rotation.settle()
        net.stumbles_at = -1
        assert torch.equal(output(net), expected), stumble
        rotation.settle()


def test_at_its_end_the_network_is_bare_and_shows_host_memory() -> None:
    import torch

    net = network()
    expected = output(net)
    rotation, _ = streamed(net)
    output(net)
    rotation.end()
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in net.modules())
    assert torch.equal(output(net), expected)
    assert rotation.size_bytes == 0


def test_a_block_that_shares_a_tensor_with_others_stays() -> None:
    from workshop_gpu.worker.host_copy import OwnCopy
    from workshop_gpu.worker.layout import split
    from workshop_gpu.worker.pool import Part
    from workshop_gpu.worker.skeletons import captured
    from workshop_gpu.worker.units import units_of

    net = network()
    net.blocks[1].weight = net.first.weight
    weights, _ = split(captured(net))
    part = Part("net", weights.size_bytes, OwnCopy(weights.size_bytes), True, in_pool=False)
    found = units_of(net, part, weights)
    assert [unit.modules for unit in found] == [(net.blocks[n],) for n in (0, 2, 3, 4)]


def test_the_profile_of_each_step_adds_up() -> None:
    from workshop_gpu.worker.metering import Meter

    net = network()
    rotation, _ = streamed(net)
    rotation.meter = meter = Meter(on_card=False)
    for _ in range(3):
        output(net)
        meter.start_step()
    profiles = meter.profiles()
    assert len(profiles) == 3
    assert all(each.copy_s > 0 and each.wait_s == each.copy_s for each in profiles)
    assert all(each.compute_s > 0 for each in profiles)


def test_neighbours_go_together_as_many_as_a_buffer_holds() -> None:
    import torch

    net = network()
    expected = output(net)
    one_bytes = units_in_host_memory(network())[0].size_bytes
    rotation, lane = streamed(net, buffer_bytes=2 * one_bytes)
    assert [len(unit.modules) for unit in rotation._units] == [2, 2, 1]
    assert rotation.size_bytes == 2 * 2 * one_bytes
    for _ in range(2):
        assert torch.equal(output(net), expected)
    lane.copies = 0
    assert torch.equal(output(net), expected)
    assert lane.copies == 3, "each unit comes once a pass"


@pytest.mark.parametrize("buffer_layers", [0.5, 1, 3])
def test_what_is_larger_than_a_buffer_comes_layer_by_layer(buffer_layers: float) -> None:
    import torch

    net = deep_network()
    expected = output(net)
    rotation, _ = streamed(net, buffer_bytes=int(buffer_layers * LAYER_BYTES))
    sizes = [len(unit.modules) for unit in rotation._units]
    assert max(sizes) == max(1, int(buffer_layers))
    assert not any(module in net.blocks for unit in rotation._units for module in unit.modules)
    for _ in range(3):
        assert torch.equal(output(net), expected)
    rotation.end()
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in net.modules())


def test_units_that_run_by_turns_stay_while_they_do() -> None:
    """Layers of one unit may run before and after those of another, as in a UNet."""
    import torch

    net = deep_network()
    expected = output(net)
    rotation, lane = streamed(net, buffer_bytes=2 * LAYER_BYTES)
    pairs = len(rotation._units)
    for _ in range(2):
        assert torch.equal(output(net), expected)
    lane.copies = 0
    in_vain = []
    fetch = rotation._fetch
    rotation._fetch = lambda unit, keep: in_vain.append(not keep) or fetch(unit, keep)
    assert torch.equal(output(net), expected)
    assert not any(in_vain)
    assert lane.copies == pairs


@pytest.mark.parametrize(
    ("runs", "coming"),
    [
        ("abc", "de"),
        ("abcdeabcdea", "bc"),
        ("edcbaedcbae", "dc"),
        ("abxyabxya", "bx"),
        ("abcab", "ca"),
    ],
)
def test_what_comes_next_is_what_came_the_last_time(runs: str, coming: str) -> None:
    from workshop_gpu.worker.order import Order

    order = Order([*"abcdexy"])
    for unit in runs:
        order.runs(unit, f"module of {unit}")
    assert "".join(order.coming(2)) == coming


def test_a_unit_that_runs_twice_in_a_pass_is_followed_by_what_followed_each_time() -> None:
    from workshop_gpu.worker.order import Order

    order = Order([*"rab"])
    one_pass = [("r", 1), ("a", 2), ("r", 3), ("b", 4)]
    for unit, module in [*one_pass, *one_pass[:1]]:
        order.runs(unit, module)
    assert order.coming(1) == ["a"]
    for unit, module in one_pass[1:3]:
        order.runs(unit, module)
    assert order.coming(1) == ["b"]
