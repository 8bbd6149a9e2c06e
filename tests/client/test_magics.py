"""`%load_ext workshop_gpu`."""

# IPython's magics carry no types.
# mypy: disable-error-code="no-untyped-call"

from collections.abc import Iterator
from pathlib import Path

import pytest
from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell
from msgspec.structs import replace
from PIL import Image

from tests.client.fakes import FakeServer, a_job, a_model, a_png
from tests.client.test_reservations import GRANTED, WAITING
from tests.client.test_tables import a_status
from workshop_gpu.api import schemas
from workshop_gpu.client import Client, magic_words, session
from workshop_gpu.client.errors import BadRequest
from workshop_gpu.client.images import GeneratedImage
from workshop_gpu.client.tables import ModelTable, StatusView


@pytest.fixture(scope="module")
def shell() -> Iterator[InteractiveShell]:
    shell = InteractiveShell.instance()
    shell.run_line_magic("load_ext", "workshop_gpu")
    yield shell
    InteractiveShell.clear_instance()


@pytest.fixture(autouse=True)
def _the_shared_client(
    monkeypatch: pytest.MonkeyPatch, fake: FakeServer, client: Client, shell: InteractiveShell
) -> None:
    monkeypatch.setattr(session._shared, "client", client)
    job = a_job("done")
    hold = schemas.Hold("h1", "shapes", 120.0)
    fake.answers |= {
        "POST jobs": job,
        "GET jobs": schemas.JobList([]),
        f"GET jobs/{job.id}/images/0": a_png(),
        "GET status": a_status(),
        "POST holds": hold,
        "DELETE holds/h1": None,
    }


def test_generate_takes_the_cell_as_prompt_and_the_line_as_options(
    shell: InteractiveShell, fake: FakeServer
) -> None:
    line = '--model shapes --seed 7 --steps 20 --size 128x96 --guidance 2.5 --negative "a star"'
    line += " --priority batch"
    image = shell.run_cell_magic("generate", line, "a red circle\n  on a blue background\n")
    assert isinstance(image, GeneratedImage)
    (body,) = fake.bodies("POST jobs")
    assert body["prompt"] == "a red circle on a blue background"
    assert (body["model"], body["seed"], body["steps"]) == ("shapes", 7, 20)
    assert (body["width"], body["height"], body["guidance"]) == (128, 96, 2.5)
    assert (body["negative_prompt"], body["priority"]) == ("a star", "batch")


def test_generate_can_give_the_picture_a_name(shell: InteractiveShell) -> None:
    image = shell.run_cell_magic("generate", "--into first", "a red circle")
    assert shell.user_ns["first"] is image


@pytest.mark.parametrize(
    ("line", "cell", "words"),
    [
        ("--sede 7", "a circle", r"no option --sede\. Did you mean --seed\? .* --help"),
        ("--xyzzy", "a circle", r"no option --xyzzy\. %%generate --help"),
        ("--seed x", "a circle", "invalid int value: 'x'.*--help"),
        ("--steps 2.5", "a circle", "--steps"),
        ("--seed", "a circle", "expected one argument"),
        ('--negative "a star', "a circle", "quote"),
        ("shapes", "a circle", "prompt goes below the line"),
        ("", "  \n", "nothing to draw"),
        ("--into 3d", "a circle", "--into 3d"),
        ("--start nowhere.png", "a circle", "--start nowhere.png: .* no such file"),
        (
            "",
            "a {colour_that_is_not} circle",
            "{colour_that_is_not} cannot be filled in: NameError",
        ),
        ("", "a {1/0} circle", "ZeroDivisionError"),
        ("", "a { circle", "a brace has no partner"),
        ("", "a {} circle", "cannot be filled in"),
        ("--seed {no_seed}", "a circle", "the line: {no_seed} cannot be filled in"),
    ],
)
def test_bad_arguments_are_usage_errors_and_nothing_is_sent(
    shell: InteractiveShell, fake: FakeServer, line: str, cell: str, words: str
) -> None:
    with pytest.raises(UsageError, match=words):
        shell.run_cell_magic("generate", line, cell)
    assert fake.bodies("POST jobs") == []


def test_braces_stand_for_what_they_are_worth(shell: InteractiveShell, fake: FakeServer) -> None:
    shell.user_ns |= {"colour": "red", "places": ["left", "right"], "number": 2.5}
    shell.run_cell_magic(
        "generate",
        "--seed {3 + 4} --model {'shapes'}",
        "a {colour} circle {places[-1]} of {number:.2f} {{braces}} {colour!r}",
    )
    (body,) = fake.bodies("POST jobs")
    assert body["prompt"] == "a red circle right of 2.50 {braces} 'red'"
    assert (body["seed"], body["model"]) == (7, "shapes")


def test_a_prompt_of_10_mb_is_sent_and_refused_by_the_server_alone(
    shell: InteractiveShell, fake: FakeServer, capsys: pytest.CaptureFixture[str]
) -> None:
    fake.answers["POST jobs"] = (413, "request_too_large")
    with pytest.raises(BadRequest, match="request_too_large"):
        shell.run_cell_magic("generate", "--model shapes", "x" * 10_000_000)


def test_the_line_alone_is_enough(shell: InteractiveShell, fake: FakeServer) -> None:
    image = shell.run_line_magic("generate", "--model shapes a {'red'} circle --n 1")
    assert isinstance(image, GeneratedImage)
    assert fake.bodies("POST jobs")[0]["prompt"] == "a red circle"


def test_a_picture_to_begin_with_has_a_name_or_a_file(
    shell: InteractiveShell, fake: FakeServer, tmp_path: Path
) -> None:
    fake.answers["POST inputs"] = schemas.Input("a" * 64, 32, 32, 1)
    shell.run_cell_magic("generate", "--model shapes --into first", "a circle")
    shell.user_ns["first"].save(tmp_path / "my file.png")
    shell.user_ns["white"] = Image.new("L", (32, 32), 255)
    line = "--model shapes --start first --mask white --strength 0.5"
    shell.run_cell_magic("generate", line, "a star")
    shell.run_cell_magic("generate", f"--model shapes --start '{tmp_path}/my file.png'", "a star")
    _, named, filed = fake.bodies("POST jobs")
    assert (named["strength"], bool(named["mask"])) == (0.5, True)
    assert named["start_image"] == filed["start_image"] != ""


def test_again_makes_the_last_picture_or_one_by_its_name(
    shell: InteractiveShell, fake: FakeServer
) -> None:
    shell.run_cell_magic("generate", "--model shapes --into first", "a circle")
    shell.run_line_magic("again", "--into second")
    shell.run_line_magic("again", "first")
    assert [body["seed"] for body in fake.bodies("POST jobs")[1:]] == [7, 7]
    assert isinstance(shell.user_ns["second"], GeneratedImage)
    with pytest.raises(UsageError, match="no picture of that name"):
        shell.run_line_magic("again", "third")


def test_queue_and_cancel(
    shell: InteractiveShell, fake: FakeServer, capsys: pytest.CaptureFixture[str]
) -> None:
    jobs = [a_job("running", "a" * 32, step=3), a_job("queued", "b" * 32), a_job("done", "c" * 32)]
    fake.answers |= {
        "GET status": a_status(running=[jobs[0]], waiting=[jobs[1]]),
        "GET jobs": schemas.JobList(jobs),
        **{f"DELETE jobs/{job.id}": job for job in jobs},
    }
    shown = repr(shell.run_line_magic("queue", ""))
    assert "me (you)" in shown
    assert "Step 3 of 20" in shown
    with pytest.raises(UsageError, match="begins with zz"):
        shell.run_line_magic("cancel", "zz")
    shell.run_line_magic("cancel", "bbb")
    shell.run_line_magic("cancel", "")
    deleted = [name[-1] for name, _ in fake.requests if name.startswith("DELETE")]
    assert deleted == ["b", "a", "b"]
    assert "Cancelled 1 job.\nCancelled 2 jobs." in capsys.readouterr().out


def test_the_queue_has_the_reservations_too(shell: InteractiveShell, fake: FakeServer) -> None:
    waits = replace(
        WAITING, participant="Ann", mine=False, device="cuda:0", reason="gpu-flux is held"
    )
    fake.answers["GET status"] = a_status(reservations=[GRANTED, waits])
    has, waiting = repr(shell.run_line_magic("queue", "")).splitlines()[2:]
    assert " ".join(has.split()) == "has me (you) (own code) Reserved 8.0 GB on cuda:0"
    assert waiting.split()[:2] == ["2", "Ann"]
    assert "Waiting for 8.0 GB on cuda:0 (position 2): gpu-flux is held, about 40 s" in waiting


def test_workshop_says_who_i_am_and_takes_a_name(
    shell: InteractiveShell, fake: FakeServer, capsys: pytest.CaptureFixture[str]
) -> None:
    fake.answers["PUT me"] = schemas.Me("me", "Ada Lovelace", None, False)
    shell.run_line_magic("workshop", "")
    shell.run_line_magic("workshop", "name Ada Lovelace")
    out = capsys.readouterr().out
    assert "You are me on http://workshop.test/base/" in out
    assert "You are Ada Lovelace." in out
    assert fake.bodies("PUT me") == [{"name": "Ada Lovelace"}]
    for line in ("name", "nmae Ada"):
        with pytest.raises(UsageError, match="name"):
            shell.run_line_magic("workshop", line)


MAGICS = (
    "generate", "again", "models", "gpu", "queue", "cancel", "hold", "release", "reserve",
    "workshop",
)  # fmt: skip


@pytest.mark.parametrize("name", MAGICS)
def test_each_magic_helps_and_does_nothing_else(
    shell: InteractiveShell, fake: FakeServer, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    assert shell.run_line_magic(name, "--help") is None
    out = capsys.readouterr().out
    assert out.startswith(f"%{name}")
    assert len(out.splitlines()) > 2
    assert fake.requests == []
    with pytest.raises(UsageError, match=f"%{name} has no option --nonsense"):
        shell.run_line_magic(name, "--nonsense")


def completed(shell: InteractiveShell, line: str) -> set[str]:
    from IPython.core.completer import provisionalcompleter

    with provisionalcompleter():
        return {each.text for each in shell.Completer.completions(line, len(line))}


def test_options_and_models_are_completed(
    shell: InteractiveShell, fake: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(magic_words, "_MODELS_KEPT_S", 10_000.0)  # however slow the completer is
    fake.answers["GET models"] = schemas.ModelList([a_model(), a_model("shapes-dit")])
    assert {"--model", "--mask"} <= completed(shell, "%%generate --m")
    assert "--seed" not in completed(shell, "%%generate --m")
    assert {"shapes", "shapes-dit"} <= completed(shell, "%%generate --model sh")
    assert "shapes-dit" in completed(shell, "%hold shapes-")
    assert "--drop" in completed(shell, "%reserve --d")
    assert "name" in completed(shell, "%workshop na")
    asked = [name for name, _ in fake.requests].count("GET models")
    assert asked == 1, "not at each key"


def test_release_gives_back_all_or_one(
    shell: InteractiveShell, fake: FakeServer, capsys: pytest.CaptureFixture[str]
) -> None:
    fake.answers |= {
        "POST reservations": GRANTED,
        "GET reservations/r1": GRANTED,
        "DELETE reservations/r1": None,
    }
    shell.run_line_magic("release", "")
    shell.run_line_magic("hold", "shapes")
    shell.run_line_magic("release", "shapes")
    shell.run_line_magic("hold", "shapes")
    shell.run_line_magic("reserve", "8GB")
    shell.run_line_magic("release", "")
    out = capsys.readouterr().out
    assert "You hold nothing" in out
    assert out.count("shapes: dropped.") == 2
    assert "All reserved GPU memory is given back." in out
    with pytest.raises(UsageError, match="no hold on other"):
        shell.run_line_magic("release", "other")


def test_models_and_gpu_show_tables(shell: InteractiveShell) -> None:
    assert isinstance(shell.run_line_magic("models", ""), ModelTable)
    assert isinstance(shell.run_line_magic("gpu", ""), StatusView)
    with pytest.raises(UsageError):
        shell.run_line_magic("gpu", "now")


def test_hold_lasts_until_dropped(
    shell: InteractiveShell, fake: FakeServer, capsys: pytest.CaptureFixture[str]
) -> None:
    shell.run_line_magic("hold", "")
    shell.run_line_magic("hold", "shapes")
    shell.run_line_magic("hold", "shapes")
    shell.run_line_magic("hold", "")
    shell.run_line_magic("hold", "--drop")
    out = capsys.readouterr().out
    assert "You hold no model" in out
    assert "shapes stays" in out
    assert "Held: shapes (held)" in out
    assert [name for name, _ in fake.requests] == ["POST holds", "DELETE holds/h1"]
    with pytest.raises(UsageError, match="no hold on other"):
        shell.run_line_magic("hold", "--drop other")


def test_reserve_lasts_until_dropped(
    shell: InteractiveShell, fake: FakeServer, capsys: pytest.CaptureFixture[str]
) -> None:
    fake.answers |= {
        "POST reservations": GRANTED,
        "GET reservations/r1": GRANTED,
        "DELETE reservations/r1": None,
    }
    for line in ("", "8GB", "500MB --gpu 0", "0.5", "--all", "", "--drop"):
        shell.run_line_magic("reserve", line)
    out = capsys.readouterr().out
    assert "You have reserved nothing" in out
    assert "Reserved: 8.0 GB of cuda:0 (granted)" in out
    sizes = [body["size_bytes"] for body in fake.bodies("POST reservations")]
    assert sizes == [8_000_000_000, 500_000_000, 500_000_000, None]
    assert len(fake.bodies("DELETE reservations/r1")) == 4


@pytest.mark.parametrize("line", ["8TB", "-8", "nan", "8GB --all", "much", "8GB --drop"])
def test_a_reservation_of_nonsense_is_a_usage_error(
    shell: InteractiveShell, fake: FakeServer, line: str
) -> None:
    with pytest.raises(UsageError):
        shell.run_line_magic("reserve", line)
    assert fake.bodies("POST reservations") == []
