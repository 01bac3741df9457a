# SPDX-License-Identifier: Apache-2.0
"""The version of a message: as old as possible, and never one that was just refused."""

import types

import pytest

from cyborg import objects, rpc_versions
from cyborg.objects import manifests
from cyborg.rpc_versions import VersionChoice

VERSIONS = sorted(manifests.CHANGES, key=manifests.parsed)
OLDEST, NEWEST = VERSIONS[0], VERSIONS[-1]
ADDED = {'plug': {'image': NEWEST}}
CHANGED = {'report_all': NEWEST}


class Clock:
    def __init__(self, monkeypatch):
        self.now = 1000.0
        clock = types.SimpleNamespace(monotonic=lambda: self.now)
        monkeypatch.setattr(rpc_versions, 'time', clock)


@pytest.fixture
def clock(monkeypatch):
    return Clock(monkeypatch)


@pytest.fixture
def choice():
    return VersionChoice('conductor', lambda: NEWEST, ADDED, CHANGED)


def test_a_message_in_which_nothing_is_new_has_the_oldest_version(choice):
    assert choice.versions('get', {'uuid': 'x'}) == [OLDEST]


def test_a_call_with_a_new_argument_is_not_sent_to_servers_that_lack_it(choice):
    assert choice.versions('plug', {'host': 'compute1', 'image': 'x'}) == [NEWEST]
    assert choice.versions('plug', {'host': 'compute1'}) == [OLDEST]


#: the name of an object that the newest version has changed
CHANGED_OBJECT = next(name for name in manifests.CHANGES[NEWEST] if hasattr(objects, name))


@pytest.mark.parametrize('is_listed', [False, True])
def test_an_object_that_has_changed_needs_its_version(choice, is_listed):
    made = getattr(objects, CHANGED_OBJECT)()
    needed = manifests.needed(CHANGED_OBJECT)
    arguments = {'thing': [made] if is_listed else made}
    assert choice.versions('send', arguments)[0] == needed
    assert choice.versions('send', arguments, is_cast=True)[0] == NEWEST


def test_a_method_of_another_form_is_not_sent_to_older_servers(choice):
    assert choice.oldest('report_all', {}) == NEWEST
    assert choice.oldest('report', {}) == OLDEST
    assert choice.versions('report_all', {}) == [NEWEST]


def test_a_method_of_which_all_servers_have_this_form_is_sent_like_others():
    choice = VersionChoice('conductor', lambda: NEWEST, {}, {'report_all': OLDEST})
    assert choice.versions('report_all', {}) == [OLDEST]


def test_a_pinned_version_is_the_newest_that_is_used():
    pinned = VersionChoice('agent', lambda: OLDEST, ADDED, CHANGED)
    assert pinned.versions('plug', {}) == [OLDEST]
    assert pinned.versions('plug', {'image': 'x'}) == []
    assert pinned.versions('report_all', {}) == []


def test_a_refused_version_is_not_used_for_a_while(choice, clock):
    arguments = {'thing': getattr(objects, CHANGED_OBJECT)()}
    choice.note_refusal(NEWEST)
    assert NEWEST not in choice.versions('send', arguments)
    # but what it is needed for may reach a newer server
    assert choice.versions('plug', {'image': 'x'}) == [NEWEST]
    clock.now += rpc_versions.CAUTION
    assert choice.versions('send', arguments)[0] == NEWEST


def test_the_oldest_version_is_used_even_if_it_was_refused(choice, clock):
    choice.note_refusal(OLDEST)
    assert choice.versions('get', {}) == [OLDEST]
