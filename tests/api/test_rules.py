"""The rules of kernels, as the instructor's requests and the kernels' ends change them."""

from workshop_gpu.api.rules import MOST_KERNELS, with_participant
from workshop_gpu.api.schemas_instructor import ParticipantRequest
from workshop_gpu.conductor.policy import Policy
from workshop_gpu.host.records import Participant

LOW = ParticipantRequest(priority="low", queue_limit=1)


def a_kernel(name, notebook="/faces.ipynb"):
    return Participant(name, "faces", name, notebook)


def ruled(*kernels, request=LOW):
    policy = Policy()
    for kernel in kernels:
        policy = with_participant(policy, kernel, request)
    return policy


def test_a_notebook_is_remembered_as_long_as_its_kernel_has_a_rule():
    nothing = ParticipantRequest(priority=None, queue_limit=None)
    part = with_participant(ruled(a_kernel("k")), a_kernel("k"), ParticipantRequest(priority=None))
    assert part.notebooks == {"k": "/faces.ipynb"}
    assert with_participant(part, a_kernel("k"), nothing) == Policy()
    assert ruled(Participant("user:ann", "Ann")).notebooks == {}


def test_so_many_kernels_rules_are_kept_and_people_always_keep_theirs():
    kernels = [a_kernel(f"k{number}", f"/{number}.ipynb") for number in range(MOST_KERNELS)]
    full = ruled(Participant("user:ann", "Ann"), *kernels)
    assert len(full.limits) == MOST_KERNELS + 1
    again = with_participant(full, kernels[0], LOW)  # it was the first to go
    policy = with_participant(again, a_kernel("new"), LOW)
    assert full.limits.keys() - policy.limits.keys() == {"k1"}
    assert policy.limits.keys() == policy.priorities.keys()
    assert policy.limits.keys() == policy.notebooks.keys() | {"user:ann"}
