"""The folder of compiled blocks: whose it is, what is read from it, how large it becomes."""

import os
from pathlib import Path

import pytest

from workshop_gpu.worker.compilers import AUTO, EAGER, INDUCTOR, OFF, backend_of, compilers_folders


@pytest.mark.parametrize(
    ("setting", "device", "backend"),
    [(OFF, "cuda", ""), (AUTO, "cpu", ""), (INDUCTOR, "cpu", INDUCTOR), (EAGER, "cuda", EAGER)],
)
def test_blocks_are_compiled_where_the_setting_says_so(
    setting: str, device: str, backend: str
) -> None:
    assert backend_of(setting, device) == backend


def test_without_triton_or_a_c_compiler_nothing_is_compiled_for_cards(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from workshop_gpu.worker import compilers

    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert "triton" in compilers.why_not({})
    assert backend_of(AUTO, "cuda") == ""
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    assert "C compiler" in compilers.why_not()
    monkeypatch.setenv("CC", "my-cc")
    assert backend_of(AUTO, "cuda") == INDUCTOR


def test_the_compilers_keep_to_the_folder_too(tmp_path: Path) -> None:
    folders = compilers_folders(str(tmp_path))
    assert {Path(each).parent for each in folders.values() if "/" in each} == {tmp_path}
    assert compilers_folders("") == {}


def test_a_folder_that_others_can_write_to_is_refused(tmp_path: Path) -> None:
    from workshop_gpu.worker.twin_store import TwinStore, UnsafeFolder

    base = tmp_path / "compiled"
    store = TwinStore(base, "a card", EAGER)
    assert base.stat().st_mode & 0o777 == store.folder.stat().st_mode & 0o777 == 0o700
    base.chmod(0o770)
    with pytest.raises(UnsafeFolder, match="chmod 700"):
        TwinStore(base, "a card", EAGER)


def test_cards_and_backends_have_folders_of_their_own(tmp_path: Path) -> None:
    from workshop_gpu.worker.twin_store import TwinStore

    stores = [TwinStore(tmp_path, *made) for made in [("a", EAGER), ("b", EAGER), ("a", INDUCTOR)]]
    assert len({each.folder for each in stores}) == 3
    assert TwinStore(tmp_path, "a", EAGER).folder == stores[0].folder


def test_what_was_used_last_the_longest_ago_leaves_first(tmp_path: Path) -> None:
    from workshop_gpu.worker.twin_store import prune, size_bytes

    for number, name in enumerate(["old", "kept", "newer", "new"]):
        (tmp_path / name).mkdir()
        (tmp_path / name / "twin").write_bytes(b"x" * 100)
        os.utime(tmp_path / name, (number, number))
    prune(tmp_path, keep=tmp_path / "kept", most_bytes=400)
    assert size_bytes(tmp_path) == 400
    prune(tmp_path, keep=tmp_path / "kept", most_bytes=250)
    assert {each.name for each in tmp_path.iterdir()} == {"kept", "new"}
    prune(tmp_path, keep=tmp_path / "kept", most_bytes=0)
    assert {each.name for each in tmp_path.iterdir()} == {"kept"}


def test_what_killed_compilers_had_begun_to_write_goes_when_nobody_can_write_it_any_more(
    tmp_path: Path,
) -> None:
    from workshop_gpu.worker.twin_store import TwinStore

    folder = TwinStore(tmp_path, "a card", EAGER).folder
    for name in ("half.4711", "being-written.4712", "whole.eager", "whole.json"):
        (folder / name).write_text("x")
        if name != "being-written.4712":
            os.utime(folder / name, (0, 0))
    TwinStore(tmp_path, "a card", EAGER)
    left = {each.name for each in folder.iterdir()}
    assert left == {"being-written.4712", "whole.eager", "whole.json"}


def test_files_that_cannot_be_read_are_as_good_as_not_there(tmp_path: Path) -> None:
    from workshop_gpu.worker.block_calls import Call
    from workshop_gpu.worker.twin_store import TwinStore
    from workshop_gpu.worker.twins import Twin, keep

    store = TwinStore(tmp_path, "a card", EAGER)
    call = Call("[]", ())
    (store.folder / "garbage.json").write_text("{")
    keep(store.folder, Twin("lost", "one", call.form, EAGER, file="is not there"))
    keep(store.folder, Twin.impossible("two", call, EAGER, "it cannot be traced"))
    store.read(["one", "two"])
    assert not store.knows("one")
    assert not (store.folder / "lost.json").exists(), "it is made again"
    assert store.knows("two")
    assert store.impossible("two", call)
    assert not store.has("two")


def test_blocks_that_were_given_up_get_no_twin_however_they_are_called(tmp_path: Path) -> None:
    from workshop_gpu.worker.block_calls import Call
    from workshop_gpu.worker.twin_store import TwinStore

    store = TwinStore(tmp_path, "a card", EAGER)
    calls = (Call("[]", ()), Call("[1]", ()))
    store.give_up("broken")
    assert all(store.impossible("broken", call) for call in calls)
    assert store.knows("broken"), "nothing is waited for"
    assert not any(store.impossible("another", call) for call in calls)
