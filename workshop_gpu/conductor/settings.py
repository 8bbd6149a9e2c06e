"""The conductor's policy, in numbers."""

import msgspec


class Settings(msgspec.Struct, frozen=True):
    """All times in seconds, all sizes in bytes.

    `queue_limit`: waiting jobs that one participant may have. `patience_s`: for how long jobs of
    ready models may overtake a job whose model is not. `min_residency_s`: for how long a loaded
    model is protected against being swapped back and forth. `rise_s`: a waiting job rises one
    priority class each time this long has passed (0: never). The margin of a device is
    `margin_fraction` of its memory, at most `margin_max_bytes`. `remembered_jobs` and
    `remembered_holds`: how many ended ones are still known. `batch_limit`: how many jobs of one
    group are drawn together at most (1: never more than one).

    Limits of time (0: none), each on its own: `download_limit_s`, `load_limit_s`, `wait_limit_s`
    (from acceptance, without pauses, the model's download and its load) and `run_limit_s`.
    `stall_limit_s`: for how long a job may run without a step, unless its steps were measured to be
    long, and an eviction may last.
    `failed_load_s`: for how long a load that failed is not tried again, unless the instructor
    asks. `reservation_limit`: reservations that one participant may have. Blocks are compiled only
    where `compile_room_bytes` are free: the compiler's process has the driver's own memory too.
    """

    queue_limit: int = 3
    patience_s: float = 20.0
    min_residency_s: float = 10.0
    rise_s: float = 600.0
    margin_fraction: float = 0.05
    margin_max_bytes: int = 1_000_000_000
    remembered_jobs: int = 200
    remembered_holds: int = 1000
    batch_limit: int = 4
    download_limit_s: float = 3600.0
    load_limit_s: float = 600.0
    wait_limit_s: float = 0.0
    run_limit_s: float = 3600.0
    stall_limit_s: float = 300.0
    failed_load_s: float = 30.0
    reservation_limit: int = 4
    compile_room_bytes: int = 1_500_000_000
