"""The client in kernels that the server started."""

import httpx

from tests.notebooks.kernels import ANSWER_S, ServerKernel
from tests.serverprocess import ServerProcess
from workshop_gpu.client import Client

LONG = "wg.generate('a red circle', 'shapes', steps=100, images=8)"


def test_a_kernel_is_a_participant_of_its_own(kernel: ServerKernel, server: ServerProcess) -> None:
    kernel.printed("import workshop_gpu as wg")
    me = kernel.printed(
        "from workshop_gpu.client.session import current\n"
        "me = current().me(); print(me.kernel, me.participant, me.admin)"
    )
    assert me == f"{kernel.id} {kernel.id} False"
    with ServerKernel(server) as other:
        assert other.id in other.printed("import workshop_gpu as wg; print(wg.connect().me())")


def test_a_picture_shows_itself_below_a_bar_that_becomes_one_line(kernel: ServerKernel) -> None:
    outputs = kernel.run(
        "import workshop_gpu as wg\nwg.generate('a red circle', 'shapes', seed=7, steps=10)"
    )
    kinds = [kind for kind, _ in outputs]
    assert kinds[-1] == "image/png"
    assert set(kinds[:-1]) == {"text/html"}
    assert "<progress" in outputs[0][1]
    assert "seed 7" in outputs[-2][1]
    assert "<progress" not in outputs[-2][1]


def test_the_stop_button_cancels_the_job_and_shows_one_line(
    kernel: ServerKernel, server: ServerProcess
) -> None:
    kernel.printed("import workshop_gpu as wg")
    request = kernel.start(LONG)
    while (output := kernel.next_output(request)) is not None:
        if "Step" in output[1]:
            break
    kernel.interrupt()
    errors = [text for kind, text in kernel.outputs(request) if kind == "error"]
    assert errors == ["Interrupted: the job was cancelled."]
    with Client(server.url, server.token) as client:
        assert client.status().waiting == []
    ended = "from workshop_gpu.client.session import current\n"
    ended += "job = current().jobs()[0]; [_ for _ in job]; print(job.job.state.value)"
    assert kernel.printed(ended) == "cancelled", "it stops within a step of its model"


def test_an_error_is_one_line_that_says_what_to_do(kernel: ServerKernel) -> None:
    (output,) = kernel.run("import workshop_gpu as wg\nwg.generate('a circle', 'nothing')")
    assert output[0] == "error"
    assert output[1].startswith("Model not available: There is no model")
    assert "shapes" in output[1]
    assert "\n" not in output[1]


def test_without_a_server_the_error_says_how_to_get_one(kernel: ServerKernel) -> None:
    (output,) = kernel.run(
        "import os\nfor name in ('WORKSHOP_GPU_URL', 'JPY_PARENT_PID'): os.environ.pop(name, '')\n"
        "os.environ['JUPYTER_RUNTIME_DIR'] = '/nowhere'\n"
        "import workshop_gpu as wg\nwg.models()"
    )
    assert output[1].startswith("No Workshop GPU server: ")
    assert "wg.connect(" in output[1]


def test_a_restarted_kernel_has_lost_its_holds(kernel: ServerKernel, server: ServerProcess) -> None:
    kernel.printed("%load_ext workshop_gpu\n%hold shapes")
    holds = "from workshop_gpu.client.session import current\n"
    holds += "from workshop_gpu.api.schemas import HoldList\n"
    holds += "print([h.model for h in current()._http.get('holds', HoldList).holds])"
    assert kernel.printed(holds) == "['shapes']"
    kernel.restart()
    assert kernel.printed(holds) == "[]"


def test_a_kernels_token_opens_nothing_else_of_the_server(
    kernel: ServerKernel, server: ServerProcess
) -> None:
    token = kernel.printed("import os; print(os.environ['WORKSHOP_GPU_TOKEN'])")
    headers = {"Authorization": f"token {token}"}
    with httpx.Client(
        base_url=server.url, headers=headers, trust_env=False, timeout=ANSWER_S
    ) as http:
        assert http.get("workshop-gpu/api/me").status_code == 200
        assert http.get("api/kernels").status_code == 403
        assert http.post("workshop-gpu/api/models/shapes/evict").status_code == 403
