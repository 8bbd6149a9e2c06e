"""Schemathesis: requests made from the description, good and bad, by a participant and an admin.

No answer is the server's own failure, each is one that the description names, and of its form.
"""

import os
from collections.abc import Iterator

import pytest
import schemathesis
from hypothesis import HealthCheck, settings

from tests.api.kernels import RunningKernel
from tests.api.people import WAIT_S, Person
from tests.serverprocess import ServerProcess
from workshop_gpu.api.openapi import description

EXAMPLES = int(os.environ.get("WORKSHOP_GPU_FUZZ_EXAMPLES", "3"))
"""Of each address, for each person; more, by hand, find rarer things."""
KNOWN = {"model": "shapes-dit-turbo", "device": "cpu:0", "index": "0"}
"""What exists is asked for as often as what does not."""

schema = schemathesis.openapi.from_dict(description()).exclude(path_regex="/api/events$")
CHECKS = [
    schemathesis.checks.CHECKS.get_one(name)
    for name in (
        "not_a_server_error",
        "status_code_conformance",
        "content_type_conformance",
        "response_schema_conformance",
        "negative_data_rejection",
    )
]


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    """One of its own: an admin's requests at random pause it, clear it, and set any rule."""
    limits = ("--WorkshopGPU.requests_per_s=0",)
    with ServerProcess(devices=("cpu:60MB",), args=limits) as process:
        yield process


@pytest.fixture(scope="module")
def tokens(server: ServerProcess) -> Iterator[dict[str, str]]:
    with RunningKernel(server) as kernel:
        token = kernel.environment("WORKSHOP_GPU_TOKEN")
        yield {"participant": token, "admin": server.token}
    with Person(server, "an admin") as admin:
        # Where everything was somebody's own, the device gets a worker again when it is given back.
        for reservation in admin.get("api/reservations")["reservations"]:
            admin.http.delete(f"api/reservations/{reservation['id']}").raise_for_status()
        admin.until_ready()


@pytest.mark.parametrize("who", ["participant", "admin"])
@schema.parametrize()
@settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)
def test_no_request_makes_the_server_fail_or_say_what_is_not_described(case, server, tokens, who):
    for name, known in KNOWN.items():
        if len(str((case.path_parameters or {}).get(name, ""))) % 2:
            case.path_parameters[name] = known
    model = case.body.get("model") if isinstance(case.body, dict) else None
    if isinstance(model, str) and len(model) % 2:
        case.body["model"] = KNOWN["model"]
    case.call_and_validate(
        base_url=server.url.rstrip("/"),
        headers={"Authorization": f"token {tokens[who]}"},
        checks=CHECKS,
        timeout=WAIT_S,
    )
