"""The account of one device."""

from hypothesis import given
from hypothesis import strategies as st

from workshop_gpu.conductor.events import ForeignProcess, PartBytes
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


def held(account: Ledger, kind: str) -> dict[str, int]:
    return {each.name: each.bytes for each in account.holders() if each.kind == kind}


# shared components

VAE, ENCODERS = PartBytes("vae", GB), PartBytes("encoders", 10 * GB)
LARGE, TURBO = PartBytes("large", 16 * GB), PartBytes("turbo", 15 * GB)


def two_that_share() -> Ledger:
    account = ledger()
    account.set_weights("large", 28 * GB, (VAE, ENCODERS, LARGE))
    account.set_weights("turbo", 26 * GB, (VAE, ENCODERS, TURBO))
    return account


def test_a_part_that_two_models_share_counts_once() -> None:
    account = two_that_share()
    assert account.free_bytes == (79 - 11 - 16 - 15 - 1) * GB
    assert held(account, "weights") == {
        "large": 17 * GB,
        "turbo": 15 * GB,
        "shared by large, turbo": 11 * GB,
    }


def test_a_shared_part_stays_until_the_last_of_its_models_leaves() -> None:
    account = two_that_share()
    assert account.leaving_bytes(["large"]) == 17 * GB
    assert account.leaving_bytes(["large", "turbo"]) == 43 * GB
    account.start_freeing("large")
    assert account.freed("large") == 17 * GB
    assert held(account, "weights") == {"turbo": 26 * GB}
    assert account.leaving_bytes(["turbo"]) == 26 * GB


def test_what_leaves_with_one_and_is_wanted_by_the_next_makes_no_room() -> None:
    account = ledger()
    account.set_weights("large", 28 * GB, (VAE, ENCODERS, LARGE))
    assert account.leaving_bytes(["large"], wanted=(VAE, ENCODERS, TURBO)) == 17 * GB


def test_a_load_brings_only_the_parts_that_are_not_here() -> None:
    account = ledger()
    account.set_weights("large", 28 * GB, (VAE, ENCODERS, LARGE))
    before = account.free_bytes
    assert account.present_bytes((VAE, ENCODERS, TURBO)) == 11 * GB
    account.set_weights("turbo", 26 * GB, (VAE, ENCODERS, TURBO))
    assert before - account.free_bytes == 15 * GB
    account.drop_weights("turbo")
    assert account.free_bytes == before


# what others hold, by name

NOTEBOOK = ForeignProcess("training.ipynb", 4711, "kernel-ada", 8 * GB)
DESKTOP = ForeignProcess("Xorg", 99, None, GB)


def test_others_are_named_as_far_as_the_driver_names_them() -> None:
    account = ledger()
    account.read(12 * GB, GB, (NOTEBOOK, DESKTOP))
    assert held(account, "foreign") == {
        "training.ipynb": 8 * GB,
        "Xorg": GB,
        "other processes": 2 * GB,
    }


def test_processes_never_hold_more_than_the_driver_says_is_used() -> None:
    account = ledger()
    account.read(5 * GB, 0, (NOTEBOOK, DESKTOP))
    assert held(account, "foreign") == {"training.ipynb": 5 * GB}


def test_two_processes_of_one_notebook_are_one_holder() -> None:
    account = ledger()
    child = ForeignProcess("training.ipynb", 4712, "kernel-ada", 2 * GB)
    account.read(10 * GB, 0, (NOTEBOOK, child))
    assert held(account, "foreign") == {"training.ipynb": 10 * GB}


def test_a_reading_without_processes_leaves_the_names_as_they_were() -> None:
    account = ledger()
    account.read(9 * GB, 0, (NOTEBOOK,))
    account.read(8 * GB, 0)
    assert held(account, "foreign") == {"training.ipynb": 8 * GB}
    account.read(8 * GB, 0, ())
    assert held(account, "foreign") == {"other processes": 8 * GB}


# reservations


def test_what_a_kernel_holds_of_its_reservation_is_not_counted_twice() -> None:
    account = ledger()
    account.reserve("r", "kernel-ada", 10 * GB)
    assert account.free_bytes == 69 * GB
    account.read(8 * GB, 0, (NOTEBOOK,))
    assert account.free_bytes == 69 * GB
    assert held(account, "foreign") == {}
    account.unreserve("r")
    assert held(account, "foreign") == {"training.ipynb": 8 * GB}


def test_what_a_kernel_holds_beyond_its_reservation_is_foreign() -> None:
    account = ledger()
    account.reserve("r", "kernel-ada", 5 * GB)
    account.read(8 * GB, 0, (NOTEBOOK,))
    assert held(account, "foreign") == {"training.ipynb": 3 * GB}
    assert account.free_bytes == (79 - 5 - 3) * GB


def test_a_reservation_does_not_cover_another_kernels_process() -> None:
    account = ledger()
    account.reserve("r", "kernel-bob", 10 * GB)
    account.read(8 * GB, 0, (NOTEBOOK,))
    assert account.free_bytes == (79 - 10 - 8) * GB


def test_a_whole_device_leaves_nothing_free_whatever_comes_and_goes() -> None:
    account = ledger()
    account.reserve("r", None, None)
    assert account.free_bytes == 0
    assert held(account, "reservation") == {"r": 79 * GB}
    account.read(20 * GB, 0)
    assert account.free_bytes == 0
    assert held(account, "reservation") == {"r": 59 * GB}
    account.unreserve("r")
    assert account.free_bytes == 59 * GB


# reservations where nobody can tell whose memory it is

PROGRAM = ForeignProcess("python (process 42)", 42, None, 30 * GB)
SPARE = ForeignProcess("the spare worker", 7, None, GB, is_spare=True)


def test_in_a_container_without_process_names_what_comes_after_the_grant_is_counted_once() -> None:
    account = ledger()
    account.reserve("r", "kernel-ada", 30 * GB)
    account.read(20 * GB, 0)
    assert account.free_bytes == 49 * GB
    assert held(account, "foreign") == {}
    account.read(30 * GB, 0)
    assert account.free_bytes == 49 * GB


def test_what_a_program_without_a_kernel_holds_of_its_reservation_is_counted_once() -> None:
    account = ledger()
    account.read(0, 0, ())
    account.reserve("r", None, 30 * GB)
    account.read(30 * GB, 0, (PROGRAM,))
    assert account.free_bytes == 49 * GB
    assert held(account, "foreign") == {}


def test_memory_from_before_the_grant_stays_foreign() -> None:
    account = ledger()
    account.read(10 * GB, 0)
    account.reserve("r", "kernel-ada", 30 * GB)
    assert account.free_bytes == (79 - 10 - 30) * GB
    account.read(25 * GB, 0)
    assert held(account, "foreign") == {"other processes": 10 * GB}
    assert account.free_bytes == (79 - 10 - 30) * GB


def test_memory_from_before_the_grant_that_went_is_foreign_no_more() -> None:
    account = ledger()
    account.read(10 * GB, 0)
    account.reserve("r", "kernel-ada", 30 * GB)
    account.read(0, 0)
    account.read(30 * GB, 0)
    assert held(account, "foreign") == {}


def test_where_less_is_held_memory_from_before_the_grant_is_taken_to_be_there_still() -> None:
    account = ledger()
    account.read(10 * GB, 0)
    account.reserve("r", "kernel-ada", 30 * GB)
    for used_gb in (40, 10, 40):
        account.read(used_gb * GB, 0)
        assert held(account, "foreign") == {"other processes": 10 * GB}


def test_memory_above_the_reservations_size_is_foreign() -> None:
    account = ledger()
    account.reserve("r", "kernel-ada", 30 * GB)
    account.read(42 * GB, 0)
    assert held(account, "foreign") == {"other processes": 12 * GB}
    assert account.free_bytes == (79 - 42) * GB


def test_the_reservations_end_makes_its_memory_foreign_until_it_is_gone() -> None:
    account = ledger()
    account.reserve("r", "kernel-ada", 30 * GB)
    account.read(30 * GB, 0)
    account.unreserve("r")
    assert held(account, "foreign") == {"other processes": 30 * GB}
    account.reserve("next", "kernel-bob", 8 * GB)
    assert account.free_bytes == (79 - 30 - 8) * GB
    account.read(0, 0)
    assert account.free_bytes == (79 - 8) * GB


def test_what_one_that_ended_may_have_left_is_not_another_reservations() -> None:
    account = ledger()
    account.reserve("ended", "kernel-ada", 30 * GB)
    account.reserve("stays", "kernel-bob", 30 * GB)
    account.read(30 * GB, 0)
    assert account.free_bytes == (79 - 60) * GB
    account.unreserve("ended")
    assert held(account, "foreign") == {"other processes": 30 * GB}


def test_of_two_reservations_the_one_that_stays_keeps_what_can_only_be_its_own() -> None:
    for ended, left_gb in (("first", 8), ("second", 6)):
        account = ledger()
        account.reserve("first", "kernel-ada", 8 * GB)
        account.read(6 * GB, 0)
        account.reserve("second", "kernel-bob", 8 * GB)
        account.read(12 * GB, 0)
        assert account.free_bytes == (79 - 16) * GB
        account.unreserve(ended)
        assert held(account, "foreign") == {"other processes": left_gb * GB}


def test_where_processes_have_names_a_stranger_does_not_use_a_kernels_reservation() -> None:
    account = ledger()
    account.read(0, 0, ())
    account.reserve("r", "kernel-ada", 30 * GB)
    account.read(30 * GB, 0, (PROGRAM,))
    assert account.free_bytes == (79 - 60) * GB


def test_the_spare_worker_uses_nobodys_reservation() -> None:
    account = ledger()
    account.reserve("r", None, 30 * GB)
    account.read(31 * GB, 0, (PROGRAM, SPARE))
    assert held(account, "foreign") == {"the spare worker": GB}


def test_of_strangers_those_that_came_last_use_the_reservation() -> None:
    account = ledger()
    large = ForeignProcess("blender (process 9)", 9, None, 40 * GB)
    account.read(40 * GB, 0, (large,))
    account.reserve("r", None, 30 * GB)
    account.read(70 * GB, 0, (PROGRAM, large))
    assert held(account, "foreign") == {"blender (process 9)": 40 * GB}


# the worker's own memory beyond what we know of


def test_what_our_worker_holds_beyond_its_account_and_the_margin_is_its_cache() -> None:
    account = ledger()
    account.set_weights("a", 30 * GB)
    account.read(used_bytes=36 * GB, ours_bytes=36 * GB)
    assert held(account, "cache") == {"worker": 5 * GB}
    assert account.free_bytes == (79 - 30 - 5) * GB


def test_a_reading_from_before_our_last_change_says_nothing_of_the_cache() -> None:
    account = ledger()
    account.set_weights("a", 30 * GB)
    account.start_freeing("a")
    account.freed("a")
    account.changed_s = 10.0
    account.read(used_bytes=30 * GB, ours_bytes=30 * GB, taken_s=9.0)
    assert held(account, "cache") == {}
    account.read(used_bytes=30 * GB, ours_bytes=30 * GB, taken_s=11.0)
    assert held(account, "cache") == {"worker": 29 * GB}


def test_the_cache_goes_with_its_worker() -> None:
    account = ledger()
    account.read(used_bytes=6 * GB, ours_bytes=6 * GB)
    assert account.free_bytes == 74 * GB
    account.clear()
    assert account.free_bytes == 79 * GB


sizes = st.integers(0, 10**12)
names = st.sampled_from("abc")
parts = st.sets(st.sampled_from((VAE, ENCODERS, LARGE, TURBO)), max_size=3)
processes = st.lists(
    st.builds(
        ForeignProcess, names, st.integers(1, 9), st.none() | names, sizes, is_spare=st.booleans()
    ),
    max_size=3,
)
changes = st.one_of(
    st.tuples(st.just("set_weights"), names, sizes, parts),
    st.tuples(st.just("commit"), names, sizes),
    st.tuples(st.just("read"), sizes, sizes, st.none() | processes),
    st.tuples(st.just("reserve"), names, st.none() | names, st.none() | sizes),
    st.tuples(
        st.sampled_from(("start_freeing", "freed", "release", "drop_weights", "unreserve")), names
    ),
)


@given(st.lists(changes, max_size=30))
def test_free_and_all_holders_are_always_the_total(steps: list[tuple[str, ...]]) -> None:
    account = ledger()
    for name, *arguments in steps:
        getattr(account, name)(*arguments)
        holders = account.holders()
        assert sum(each.bytes for each in holders) + account.free_bytes == account.total_bytes
        assert len({(each.kind, each.name) for each in holders}) == len(holders)


small = st.integers(0, 20)
nameless_changes = st.one_of(
    st.tuples(st.just("read"), small.map(lambda held: held * GB), st.just(0)),
    st.tuples(st.just("reserve"), names, st.none() | names, small.map(lambda size: size * GB)),
    st.tuples(st.just("unreserve"), names),
)


@given(st.lists(nameless_changes, max_size=30))
def test_what_is_free_is_really_there_and_the_end_of_a_reservation_takes_nothing(
    steps: list[tuple[str, ...]],
) -> None:
    """Whoever the memory is counted to, no more is free than the driver leaves, nor than nobody
    has reserved."""
    account = ledger()
    used = 0
    for name, *arguments in steps:
        before = account.free_bytes
        getattr(account, name)(*arguments)
        used = arguments[0] if name == "read" else used
        assert account.free_bytes <= account.most_bytes - max(used, account.reserved_bytes)
        if name == "unreserve":
            assert account.free_bytes >= before


@given(st.lists(nameless_changes, max_size=20), small, small)
def test_what_strangers_held_all_the_time_is_never_a_reservations(
    steps: list[tuple[str, ...]], always: int, last: int
) -> None:
    account = ledger()
    account.read(always * GB, 0)
    for name, *arguments in (*steps, ("read", last * GB, 0)):
        if name == "read":
            arguments[0] += always * GB
        getattr(account, name)(*arguments)
        assert account.foreign_bytes >= always * GB
