"""The client against a real Jupyter server with a real worker process."""

import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator

import httpx
import pytest

from tests.serverprocess import ServerProcess
from workshop_gpu.api import schemas
from workshop_gpu.client import Client, Studio
from workshop_gpu.client.errors import (
    BadRequest,
    ClientError,
    JobCancelled,
    JobEnded,
    JobUnknown,
    ModelNotOffered,
    ServerRefused,
)
from workshop_gpu.client.images import GeneratedImage
from workshop_gpu.client.words import Progress

PROMPT = "a red circle on a blue background"
WAIT_S = 180.0


@pytest.fixture(scope="module")
def real(server: ServerProcess) -> Iterator[Client]:
    with Client(server.url, server.token) as client:
        yield client


def made(client: Client, **options: object) -> GeneratedImage:
    image = client.generate(PROMPT, "shapes", **{"steps": 4, **options})  # type: ignore[arg-type]
    assert isinstance(image, GeneratedImage)
    return image


def test_a_prompt_becomes_a_picture_that_can_be_made_again(real: Client) -> None:
    image = made(real, seed=7, steps=20)
    assert image.size == (128, 128)
    assert (image.prompt, image.seed, image.model) == (PROMPT, 7, "shapes")
    red, _, blue = image.getpixel((64, 64))  # type: ignore[misc]
    assert red > 150 > 100 > blue
    assert real.again(image).tobytes() == image.tobytes()
    assert real.again(image.png_bytes, progress=False).tobytes() == image.tobytes()


def test_a_picture_tells_how_each_steps_time_was_spent_where_that_was_asked_for(
    real: Client,
) -> None:
    image = made(real, seed=7, profile=True)
    assert [step.number for step in image.profile] == [1, 2, 3, 4]
    assert all(step.compute_s > 0 for step in image.profile)
    again = real.again(image)
    assert again.tobytes() == image.tobytes()
    assert list(again.profile) == []


def test_a_rung_that_an_instructor_asks_for_is_where_the_model_is_drawn(real: Client) -> None:
    image = made(real, seed=7, placement="all-streamed", profile=True)
    assert "streamed" in image.metadata["placement"]
    assert all(step.copy_s > 0 for step in image.profile)
    with pytest.raises(ServerRefused, match='"turbo" is none of auto, resident'):
        real.submit(PROMPT, "shapes", placement="turbo")


def test_several_pictures_each_have_a_seed_of_their_own(real: Client) -> None:
    images = real.generate(PROMPT, "shapes", seed=5, steps=2, images=3)
    assert isinstance(images, list)
    assert [image.seed for image in images] == [5, 6, 7]
    assert real.again(images[1]).tobytes() == images[1].tobytes()


def test_progress_is_told_step_by_step(real: Client) -> None:
    told: list[Progress] = []
    real.submit(PROMPT, "shapes", steps=40).wait(WAIT_S, told.append)
    steps = [progress.job.step for progress in told if progress.job.state == "running"]
    assert steps == sorted(steps)
    assert len(set(steps)) >= 3
    assert told[-1].job.state == "done"


class NoStream(httpx.HTTPTransport):
    """A network that lets no event stream through, as some proxies do."""

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        if request.url.path.endswith("/events"):
            raise httpx.ReadError("the proxy does not like streams")
        return super().handle_request(request)


def test_it_works_where_no_event_stream_comes_through(server: ServerProcess) -> None:
    with Client(server.url, server.token, transport=NoStream()) as client:
        assert made(client).size == (128, 128)
        assert not client.events.live


def test_a_cancelled_job_ends_soon_and_only_once(real: Client) -> None:
    handle = real.submit(PROMPT, "shapes", steps=100, images=8)

    def cancel(progress: Progress) -> None:
        if progress.job.step == 1:
            handle.cancel()

    with pytest.raises(JobCancelled):
        handle.wait(WAIT_S, cancel)
    assert handle.job.step < 100
    handle.cancel()
    with pytest.raises(JobEnded):
        real._http.delete(f"jobs/{handle.id}")


def test_a_hold_is_seen_by_the_server_until_dropped(real: Client) -> None:
    def holds() -> list[str]:
        answer = real._http.get("holds", schemas.HoldList)
        return [hold.model for hold in answer.holds]

    with real.hold("shapes") as held:
        held.renew()
        assert holds() == ["shapes"]
    assert holds() == []
    held.drop()


def test_jobs_are_found_again_by_id(real: Client) -> None:
    image = made(real, seed=3)
    newest = real.jobs()[0]
    assert newest.images()[0].tobytes() == image.tobytes()
    assert real.job(newest.id).images()[0].seed == 3
    with pytest.raises(JobUnknown):
        real.job("0" * 32)


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"prompt": ""}, BadRequest, "prompt"),
        ({"prompt": "x" * 100_000}, BadRequest, "prompt"),
        ({"size": 7}, BadRequest, "width"),
        ({"size": 100_000}, BadRequest, "width"),
        ({"steps": 0}, BadRequest, "steps"),
        ({"steps": 10**9}, BadRequest, "steps"),
        ({"seed": -1}, BadRequest, "seed"),
        ({"seed": 2**80}, BadRequest, "seed"),
        ({"guidance": -1.0}, BadRequest, "guidance"),
        ({"images": 0}, BadRequest, "images"),
        ({"model": "nothing"}, ModelNotOffered, "shapes"),
        ({"model": "../etc/passwd"}, ModelNotOffered, "shapes"),
    ],
)
def test_bad_input_is_refused_in_words_and_nothing_waits(
    real: Client, options: dict[str, object], error: type[ClientError], words: str
) -> None:
    with pytest.raises(error, match=words):
        real.submit(**{"prompt": PROMPT, "model": "shapes", **options})  # type: ignore[arg-type]
    assert real.status().waiting == []


def test_status_and_models_show_what_is_loaded(real: Client) -> None:
    made(real)
    assert "shapes" in repr(real.models())
    assert "ready on cpu:0" in repr(real.models()["shapes"].state + real.models()._repr_html_())
    assert any(part.name == "shapes" for part in real.status().devices[0].holders)
    assert "weights: shapes" in repr(real.status())


def test_a_plan_is_for_as_many_pictures_at_once_as_are_asked_for(real: Client) -> None:
    made(real)
    one, two = (real.explain("shapes", 64, 64, batch=batch) for batch in (None, 2))
    assert two.plan.rungs[0].working_bytes > one.plan.rungs[0].working_bytes
    with pytest.raises(BadRequest, match="batch"):
        real.explain("shapes", batch=500)


def test_a_name_can_be_set(real: Client) -> None:
    assert real.rename("Ada").name == "Ada"
    assert real.me().name == "Ada"


def test_the_studio_makes_a_picture(real: Client) -> None:
    studio = Studio(real, prompt=PROMPT, model="shapes", seed=7, steps=4)
    there = threading.Event()
    studio.observe(lambda change: there.set(), "images")
    studio.generate()
    assert there.wait(WAIT_S)
    assert studio.images[-1].tobytes() == made(real, seed=7).tobytes()
    studio.close()


# scripts of their own


def script(server: ServerProcess, code: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)],
        env=server.environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_a_script_finds_the_server_by_itself(server: ServerProcess) -> None:
    process = script(
        server,
        """
        import workshop_gpu as wg
        print(wg.generate("a red circle", "shapes", steps=2).size, wg.models()[0].id)
        """,
    )
    out, err = process.communicate(timeout=WAIT_S)
    assert (out.strip(), err, process.returncode) == ("(128, 128) shapes", "", 0)


def test_ctrl_c_cancels_the_job_on_the_server(server: ServerProcess, real: Client) -> None:
    process = script(
        server,
        """
        import signal
        from workshop_gpu.client.client import Client
        from workshop_gpu.client.waiting import wait_with_bar
        from workshop_gpu.client import progress

        # What a shell starts in the background ignores Ctrl-C, and so do these tests' processes.
        signal.signal(signal.SIGINT, signal.default_int_handler)

        class Bar:
            def show(self, now):
                print(now.job.id, now.job.state.value, flush=True)
            def close(self):
                print("closed", flush=True)

        progress.TerminalBar = Bar
        Client().generate("a red circle", "shapes", steps=100, images=8)
        """,
    )
    assert process.stdout is not None
    running = (line for line in process.stdout if "running" in line)
    job_id = [next(running) for _ in range(3)][-1].split()[0]  # in the middle of it
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=WAIT_S)
    assert process.returncode != 0
    assert "Interrupted: the job was cancelled." in err
    with pytest.raises(JobCancelled):
        real.job(job_id).wait(WAIT_S)


def test_importing_the_package_costs_the_server_nothing_of_the_client() -> None:
    code = "import sys, workshop_gpu; print([n for n in sys.modules if n in %r])"
    heavy = ("httpx", "torch", "PIL", "ipywidgets", "anywidget", "IPython", "workshop_gpu.client")
    out = subprocess.run(
        [sys.executable, "-c", code % (heavy,)], capture_output=True, text=True, check=True
    )
    assert out.stdout.strip() == "[]"


def test_the_client_alone_imports_no_widgets_and_no_torch() -> None:
    code = "import sys, workshop_gpu as wg; wg.Client; print([n for n in sys.modules if n in %r])"
    heavy = ("torch", "ipywidgets", "anywidget", "IPython", "tornado", "jupyter_server")
    out = subprocess.run(
        [sys.executable, "-c", code % (heavy,)], capture_output=True, text=True, check=True
    )
    assert out.stdout.strip() == "[]"
