import asyncio

import msgspec
import pytest
from jupyter_server.auth.identity import User

from workshop_gpu.api.identity import (
    ADMIN_RESOURCE,
    RESOURCE,
    KernelAwareAuthorizer,
    KernelTokens,
    KernelUser,
    participant_of,
)
from workshop_gpu.conductor.errors import InvalidRequest

KERNEL = "0123456789abcdef"
USER = KernelUser(username="kernel", kernel_id=KERNEL)


class Nobody:
    """An authorizer that lets nobody do anything."""

    def is_authorized(self, handler, user, action, resource):
        return False


class Everybody:
    def is_authorized(self, handler, user, action, resource):
        return True


def may(authorizer, user, resource):
    aware = KernelAwareAuthorizer(authorizer)
    return asyncio.run(aware.is_authorized(None, user, "execute", resource))


def test_a_kernel_is_a_participant_and_never_an_admin():
    assert may(Nobody(), USER, RESOURCE)
    assert not may(Everybody(), USER, ADMIN_RESOURCE)


def test_people_are_what_the_servers_authorizer_says():
    person = User(username="ann")
    assert may(Everybody(), person, ADMIN_RESOURCE)
    assert not may(Nobody(), person, RESOURCE)


def test_a_kernel_that_starts_again_has_a_new_token_and_keeps_its_name():
    tokens = KernelTokens()
    old = tokens.mint(KERNEL, "faces")
    new = tokens.mint(KERNEL, "renamed")
    assert tokens.kernel(old) is None
    assert tokens.kernel(new) == KERNEL
    assert participant_of(USER, tokens, "").name == "faces"


def test_the_token_of_a_kernel_that_is_gone_opens_nothing():
    tokens = KernelTokens()
    token = tokens.mint(KERNEL, "faces")
    tokens.forget(KERNEL)
    assert tokens.kernel(token) is None
    assert tokens.kernel("") is None
    assert tokens.name(KERNEL) is None


def test_a_kernel_cannot_take_another_name_by_a_header():
    assert participant_of(USER, KernelTokens(), "somebody else").id == KERNEL


@pytest.mark.parametrize("header", ["n" * 101, "n" * 10_000, "a\x7fb", "a\x85b"])
def test_a_header_that_cannot_be_a_name_is_refused_and_not_cut(header):
    with pytest.raises(InvalidRequest, match="X-Workshop-GPU-Participant") as refused:
        participant_of(User(username="ann"), KernelTokens(), header)
    assert f"{len(header):,} characters" in refused.value.message
    assert refused.value.facts["limit"] == 100
    assert participant_of(USER, KernelTokens(), header).id == KERNEL


def test_a_name_with_markup_is_a_name_as_it_stands():
    """It is shown as text everywhere; a hub's names may have any printable character."""
    person = User(username="ann", display_name="Ann <b>x</b> & Bob")
    assert participant_of(person, KernelTokens(), "").name == "Ann <b>x</b> & Bob"
    assert participant_of(person, KernelTokens(), "<b>x</b>").name == "<b>x</b>"


def test_a_notebook_of_any_name_gives_a_name_that_can_be_shown():
    tokens = KernelTokens()
    tokens.mint(KERNEL, "a\nb" + "x" * 10_000)
    assert tokens.name(KERNEL) == "ab" + "x" * 58
    tokens.mint("another", "\n\x00")
    assert tokens.name("another") is None


def test_a_notebook_whose_name_is_no_text_has_a_kernel_all_the_same():
    tokens = KernelTokens()
    tokens.mint(KERNEL, "caf\udce9", "/caf\udce9.ipynb")
    assert msgspec.json.encode(tokens.participant(KERNEL))
