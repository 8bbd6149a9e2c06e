"""What is measured, on figures that can be checked by hand."""

import pytest

from workshop_gpu.simulation.measures import Record, jain, percentile


def test_percentiles_are_values_that_occurred() -> None:
    values = [float(number) for number in range(100, 0, -1)]
    assert [percentile(values, share) for share in (0.5, 0.95, 1.0)] == [50.0, 95.0, 100.0]
    assert percentile([7.0], 0.95) == 7.0
    assert percentile([], 0.5) == 0.0


def test_jains_index_is_one_for_equal_shares_and_one_nth_where_one_has_all() -> None:
    assert jain([3.0, 3.0, 3.0]) == 1.0
    assert jain([4.0, 0.0, 0.0, 0.0]) == 0.25
    assert jain([2.0, 4.0]) == pytest.approx(0.9)
    assert jain([0.0, 0.0]) == 1.0


def test_waits_shares_and_images_are_taken_down() -> None:
    record = Record(closes_s=3600.0)
    record.submitted("one", "ada", "a", 0.0)
    record.submitted("two", "bob", "a", 10.0)
    record.load_began(1.0)
    record.began(["one"], ["one", "two"], 6.0, 2.0)
    record.began(["two"], ["two"], 6.0, 20.0)
    record.ended(8.0)
    record.ended(26.0)
    measures = record.measures(["ada", "bob"])
    assert (measures.images_per_hour, measures.swaps_per_hour) == (2.0, 1.0)
    assert (measures.wait_p50_s, measures.wait_max_s) == (2.0, 10.0)
    assert (measures.jain, measures.overtaken_max_s) == (1.0, 0.0)


def test_a_job_is_overtaken_while_those_run_that_were_behind_it_and_began() -> None:
    record = Record(closes_s=3600.0)
    for job in ("cold", "warm", "ahead", "late"):
        record.submitted(job, job, "a", 0.0)
    record.began(["warm"], ["cold", "warm", "late"], 5.0, 3.0)
    record.began(["ahead"], ["ahead", "cold", "late"], 5.0, 8.0)
    record.began(["late"], ["cold", "late"], 5.0, 13.0)
    record.began(["cold"], ["cold"], 5.0, 18.0)
    assert record.measures(["cold"]).overtaken_max_s == 10.0


def test_nobody_is_overtaken_by_a_job_of_their_own() -> None:
    record = Record(closes_s=3600.0)
    record.submitted("cold", "ada", "a", 0.0)
    record.submitted("warm", "ada", "b", 0.0)
    record.began(["warm"], ["cold", "warm"], 5.0, 3.0)
    record.began(["cold"], ["cold"], 5.0, 8.0)
    assert record.measures(["ada"]).overtaken_max_s == 0.0


def test_two_that_overtake_at_once_on_two_gpus_take_no_more_time_than_one() -> None:
    record = Record(closes_s=3600.0)
    for job in ("cold", "warm", "other"):
        record.submitted(job, job, "a", 0.0)
    record.began(["warm"], ["cold", "warm", "other"], 5.0, 1.0)
    record.began(["other"], ["cold", "other"], 2.0, 3.0)
    record.began(["cold"], ["cold"], 5.0, 5.0)
    assert record.measures(["cold"]).overtaken_max_s == 4.0


def test_a_job_that_begins_is_overtaken_no_longer() -> None:
    record = Record(closes_s=3600.0)
    for job in ("cold", "warm"):
        record.submitted(job, job, "a", 0.0)
    record.began(["warm"], ["cold", "warm"], 5.0, 3.0)
    record.began(["cold"], ["cold"], 5.0, 4.0)
    assert record.measures(["cold"]).overtaken_max_s == 1.0


def test_those_who_waited_for_a_load_share_its_seconds() -> None:
    record = Record(closes_s=3600.0)
    record.submitted("one", "ada", "a", 0.0)
    record.submitted("two", "bob", "a", 0.0)
    record.submitted("other", "cleo", "b", 0.0)
    record.loaded("a", 6.0)
    assert record.load_s == {"ada": 3.0, "bob": 3.0}


def test_who_is_drawn_along_in_a_batch_overtakes_nobody() -> None:
    record = Record(closes_s=3600.0)
    for job in ("first", "second", "third"):
        record.submitted(job, job, "a", 0.0)
    record.began(["first", "third"], ["first", "second", "third"], 5.0, 1.0)
    record.began(["second"], ["second"], 5.0, 6.0)
    assert record.measures(["first"]).overtaken_max_s == 0.0


def test_what_ends_after_the_room_closed_is_no_image_of_its_hours() -> None:
    record = Record(closes_s=3600.0)
    record.submitted("job", "ada", "a", 3590.0)
    record.began(["job"], ["job"], 20.0, 3595.0)
    record.ended(3615.0)
    assert record.measures(["ada"]).images_per_hour == 0.0
    assert record.gpu_s == {"ada": 5.0}
