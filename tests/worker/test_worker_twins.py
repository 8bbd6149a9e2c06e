"""Twins of blocks: they compute what the block does, for all sizes for which they say so."""

from pathlib import Path
from typing import Any

import pytest

SIDE = 8


def block(bias: bool = True, gain: float = 2.0) -> Any:
    """A block with two inputs, one of which it hands back changed; and nothing else to give."""
    import torch

    class Block(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = torch.nn.Linear(SIDE, SIDE, bias=bias)
            self.gain = gain

        def forward(self, values: Any, *, shift: Any, options: dict[str, Any]) -> Any:
            if values.shape[1] > 100:  # another way for long ones
                return None, values * 3
            return None, torch.tanh(self.inner(values) * self.gain) + shift[:, None]

    Block.__qualname__ = "Block"
    torch.manual_seed(0)
    return Block().eval()


def arguments(batch: int, length: int) -> dict[str, Any]:
    import torch

    values = torch.linspace(-1, 1, batch * length * SIDE).reshape(batch, length, SIDE)
    return {"values": values, "shift": torch.ones(batch, SIDE), "options": {}}


def made(module: Any, folder: Path, batch: int = 2, length: int = 6) -> Any:
    """A twin of the block, read anew from its file."""
    from workshop_gpu.worker.block_calls import call_of, kind_of
    from workshop_gpu.worker.compilers import EAGER
    from workshop_gpu.worker.twins import load, make, twins_in

    given = arguments(batch, length)
    call, _ = call_of([given.pop("values")], given)
    make(module, kind_of(module), call, EAGER, folder, "cpu")
    (twin,) = twins_in(folder)
    return load(folder, twin)


@pytest.fixture(scope="module")
def twin(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return made(block(), tmp_path_factory.mktemp("twins"))


def tensors(batch: int, length: int) -> list[Any]:
    given = arguments(batch, length)
    return [given["values"], given["shift"]]


@pytest.mark.parametrize(("batch", "length"), [(2, 6), (3, 6), (2, 99), (7, 2)])
def test_a_twin_computes_the_same_at_sizes_that_it_was_not_made_for(
    twin: Any, batch: int, length: int
) -> None:
    import torch

    from workshop_gpu.worker.twins import block_tensors

    one = block()
    with torch.no_grad():
        one.inner.weight.mul_(1.5)  # its weights are the block's, as they are now
    given = arguments(batch, length)
    with torch.inference_mode():
        nothing, expected = one(given.pop("values"), **given)
        assert twin.holds_for(tensors(batch, length))
        found = twin([*block_tensors(one)(), *tensors(batch, length)])
    assert (nothing, found[0]) == (None, None)
    assert torch.equal(found[1], expected)


def test_a_twin_says_where_it_does_not_hold(twin: Any) -> None:
    import torch

    assert not twin.holds_for(tensors(2, 101)), "there the block takes another way"
    assert not twin.holds_for(tensors(1, 6)), "a size of one spreads over others"
    values, shift = tensors(2, 6)
    assert not twin.holds_for([values, shift[:1]])
    assert not twin.holds_for([values.transpose(0, 1).contiguous().transpose(0, 1), shift])
    assert twin.holds_for([torch.cat([values, values])[2:], shift]), "wherever it lies in memory"


def test_blocks_are_of_one_kind_if_only_the_numbers_in_them_differ() -> None:
    import torch

    from workshop_gpu.worker.block_calls import NotDescribable, kind_of

    one, other = block(), block()
    with torch.no_grad():
        other.inner.weight.zero_()
    assert kind_of(one) == kind_of(other)
    different = [block(bias=False), block(gain=3.0), torch.nn.Linear(SIDE, SIDE)]
    half = block().half()
    assert len({kind_of(each) for each in [one, *different, half]}) == 5
    one.helper = object()
    with pytest.raises(NotDescribable):
        kind_of(one)


def test_a_call_is_noted_by_types_and_sizes_alone() -> None:
    import torch

    from workshop_gpu.worker.block_calls import NotDescribable, call_of, value_of

    secret = torch.full((2, 3), 4711.0)
    call, found = call_of([secret, None, [1, "a"]], {"more": (secret, {"deep": True})})
    assert call.sizes == ((2, 3), (2, 3))
    assert "4711" not in call.form
    again, _ = call_of([secret * 0, None, [1, "a"]], {"more": (secret, {"deep": True})})
    assert call == again
    assert call_of([secret, None, [1, "b"]], {})[0] != call
    import msgspec

    args, kwargs = value_of(msgspec.json.decode(call.form), iter(found))
    assert args[1:] == [None, [1, "a"]]
    assert kwargs["more"][1] == {"deep": True}
    with pytest.raises(NotDescribable):
        call_of([object()], {})


@pytest.mark.parametrize("fault", ["changes its input", "gives no tensor", "has its own numbers"])
def test_what_cannot_be_a_twin_is_refused(fault: str, tmp_path: Path) -> None:
    import torch

    from workshop_gpu.worker.block_calls import call_of
    from workshop_gpu.worker.compilers import EAGER
    from workshop_gpu.worker.twins import NotCompilable, make

    class Faulty(torch.nn.Module):
        def forward(self, values: Any) -> Any:
            match fault:
                case "changes its input":
                    return values.add_(1)
                case "gives no tensor":
                    return None
            return values + torch.tensor([1.0, 2.0])

    call, _ = call_of([torch.ones(3, 2)], {})
    with pytest.raises(NotCompilable):
        make(Faulty(), "kind", call, EAGER, tmp_path, "cpu")
    assert list(tmp_path.iterdir()) == []
