"""The account of one device."""

from hypothesis import given
from hypothesis import strategies as st

from workshop_gpu.conductor.ledger import Ledger

GB = 1_000_000_000


def ledger(total_bytes: int = 80 * GB, foreign_bytes: int = 0) -> Ledger:
    made = Ledger(margin_fraction=0.05, margin_max_bytes=GB)
    made.open(total_bytes, foreign_bytes)
    return made


def test_the_margin_is_a_fraction_of_small_devices_and_bounded_on_large_ones() -> None:
    assert ledger(2 * GB).margin_bytes == GB // 10
    assert ledger(80 * GB).margin_bytes == GB


def test_every_kind_of_holder_takes_from_what_is_free() -> None:
    account = ledger(foreign_bytes=5 * GB)
    account.set_weights("a", 30 * GB)
    account.set_weights("b", 20 * GB)
    account.commit("job", 2 * GB)
    account.start_freeing("b")
    assert account.free_bytes == (80 - 1 - 5 - 30 - 20 - 2) * GB
    assert [(holder.kind, holder.name) for holder in account.holders()] == [
        ("weights", "a"),
        ("freeing", "b"),
        ("working", "job"),
        ("foreign", "other processes"),
        ("margin", "margin"),
    ]


def test_measured_weights_replace_the_estimate() -> None:
    account = ledger()
    account.set_weights("a", 30 * GB)
    account.set_weights("a", 28 * GB)
    assert account.free_bytes == 51 * GB


def test_what_others_take_of_our_promise_makes_free_negative() -> None:
    account = ledger()
    account.set_weights("a", 70 * GB)
    account.read(used_bytes=90 * GB, ours_bytes=70 * GB)
    assert account.free_bytes == (80 - 1 - 70 - 20) * GB < 0


def test_our_own_change_between_two_readings_cancels_out() -> None:
    account = ledger()
    account.read(used_bytes=12 * GB, ours_bytes=2 * GB)
    account.set_weights("a", 30 * GB)
    assert not account.read(used_bytes=42 * GB, ours_bytes=32 * GB)
    assert account.foreign_bytes == 10 * GB


def test_a_reading_that_contradicts_itself_is_not_believed() -> None:
    account = ledger(foreign_bytes=10 * GB)
    assert not account.read(used_bytes=0, ours_bytes=GB)
    assert not account.read(used_bytes=GB, ours_bytes=-1)
    assert account.foreign_bytes == 10 * GB


sizes = st.integers(0, 10**12)
names = st.sampled_from("abc")
changes = st.one_of(
    st.tuples(st.just("set_weights"), names, sizes),
    st.tuples(st.just("commit"), names, sizes),
    st.tuples(st.just("read"), sizes, sizes),
    st.tuples(st.sampled_from(("start_freeing", "freed", "release", "drop_weights")), names),
)


@given(st.lists(changes, max_size=30))
def test_free_and_all_holders_are_always_the_total(steps: list[tuple[str, ...]]) -> None:
    account = ledger()
    for name, *arguments in steps:
        getattr(account, name)(*arguments)
        held = sum(holder.bytes for holder in account.holders())
        assert held + account.free_bytes == account.total_bytes
