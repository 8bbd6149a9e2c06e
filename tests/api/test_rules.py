"""The rules of kernels, as the instructor's requests and the kernels' ends change them."""

from workshop_gpu.api.rules import MOST_KERNELS, inherited, with_participant
from workshop_gpu.api.schemas_instructor import ParticipantRequest
from workshop_gpu.conductor.policy import Policy
from workshop_gpu.conductor.states import Priority
from workshop_gpu.host.records import Participant

LOW = ParticipantRequest(priority="low", queue_limit=1)


def a_kernel(name, notebook="/faces.ipynb"):
    return Participant(name, "faces", name, notebook)


def ruled(*kernels, request=LOW):
    policy = Policy()
    for kernel in kernels:
        policy = with_participant(policy, kernel, request)
    return policy


def test_a_notebooks_next_kernel_has_the_rules_and_the_one_before_has_none():
    policy = inherited(ruled(a_kernel("old")), a_kernel("new"), ["new"])
    assert policy == ruled(a_kernel("new"))


def test_another_notebooks_kernel_gets_no_rules_nor_does_one_without_a_notebook():
    before = ruled(a_kernel("old"), a_kernel("nameless", ""))
    for heir in (a_kernel("new", "/hearts.ipynb"), a_kernel("new", "")):
        assert inherited(before, heir, ["new"]) == before


def test_a_kernel_that_runs_keeps_its_rules_when_its_notebook_gets_another_one():
    before = ruled(a_kernel("old"))
    assert inherited(before, a_kernel("new"), ["old", "new"]) == before


def test_of_several_kernels_the_later_rule_counts_and_the_new_ones_own_before_all():
    high, two = ParticipantRequest(priority="high"), ParticipantRequest(queue_limit=2)
    policy = with_participant(ruled(a_kernel("first")), a_kernel("second"), high)
    own = with_participant(policy, a_kernel("new"), two)
    for before, limit in ((policy, 1), (own, 2)):
        after = inherited(before, a_kernel("new"), ["new"])
        assert (after.limits, after.priorities) == ({"new": limit}, {"new": Priority.HIGH})
        assert after.notebooks == {"new": "/faces.ipynb"}


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
