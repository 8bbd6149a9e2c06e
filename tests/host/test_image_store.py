import pytest

from workshop_gpu.conductor.errors import JobUnknown
from workshop_gpu.host import image_store
from workshop_gpu.host.image_store import ImageStore

JOB = "0" * 32


def test_saved_images_are_found_again_and_forgotten_together(tmp_path):
    store = ImageStore(tmp_path / "images")
    assert store.save(JOB, [b"one", b"three"]) == 8
    assert store.path(JOB, 1).read_bytes() == b"three"
    store.forget(JOB)
    with pytest.raises(JobUnknown):
        store.path(JOB, 0)
    store.forget(JOB)


def test_the_newest_images_are_in_memory_as_far_as_there_is_room(tmp_path, monkeypatch):
    monkeypatch.setattr(image_store, "FRESH_BYTES", 10)
    store = ImageStore(tmp_path)
    old, middle, new = ("1" * 32, "2" * 32, "3" * 32)
    store.save(old, [b"six___"])
    store.save(middle, [b"one"])
    assert store.fresh(old) == [b"six___"]
    store.save(new, [b"one", b"two"])
    assert (store.fresh(old), store.fresh(middle)) == ([], [b"one"])
    assert store.fresh(new) == [b"one", b"two"]
    store.forget(new)
    assert store.fresh(new) == []
    store.save("4" * 32, [b"too large for it"])
    assert store.fresh("4" * 32) == []


def test_an_image_that_is_not_there_is_unknown(tmp_path):
    store = ImageStore(tmp_path)
    store.save(JOB, [b"one"])
    with pytest.raises(JobUnknown):
        store.path(JOB, 1)


@pytest.mark.parametrize("job", ["../secret", "", "A" * 32, "0" * 31])
def test_a_job_id_never_names_a_path_elsewhere(tmp_path, job):
    with pytest.raises(JobUnknown):
        ImageStore(tmp_path).path(job, 0)
    with pytest.raises(JobUnknown):
        ImageStore(tmp_path).save(job, [b""])


def test_what_an_interrupted_save_left_does_not_hinder_the_next(tmp_path):
    store = ImageStore(tmp_path)
    (tmp_path / f".{JOB}.part").mkdir()
    (tmp_path / f".{JOB}.part" / "7.png").write_bytes(b"half")
    store.save(JOB, [b"whole"])
    assert [path.name for path in (tmp_path / JOB).iterdir()] == ["0.png"]


def test_a_save_that_fails_leaves_nothing_on_the_disk(tmp_path):
    store = ImageStore(tmp_path)
    store.save(JOB, [b"the first"])
    with pytest.raises(OSError, match="not empty"):
        store.save(JOB, [b"the same job again"])
    assert [path.name for path in tmp_path.iterdir()] == [JOB]
