# SPDX-License-Identifier: Apache-2.0
"""Handles that hosts clean after their requests, and those that they could not clean."""

import argparse

import pytest

from cyborg import errors
from cyborg.cmd import manage_handles
from cyborg.conductor.engine import arqs, quarantine
from cyborg.conductor.engine.unit_of_work import transact
from cyborg.db.sqlalchemy import history, models
from cyborg.db.sqlalchemy.arqs import Scope
from tests.fixtures.reporting_host import (
    CAUSE,
    MOST_ATTEMPTS,
    NAME,
    SERVER,
    SILENT_SINCE,
    deployable,
    device,
    handle,
)

OTHER_SERVER = '33333333-3333-4333-8333-333333333333'


def unbind(host, *requests):
    with transact(host.db, CAUSE) as unit:
        arqs.unbind(unit, Scope(None, SILENT_SINCE), requests)


def test_a_hand_back_is_recorded_where_it_was_though_its_request_is_elsewhere_now(host):
    # given a handle that is cleaned while its request is bound to another server
    card = device(
        'card', deployable('part', handle('a', cleaning='reset')), deployable('other', 'b')
    )
    host.report(card)
    request = host.request()
    host.bind(request)
    unbind(host, request)
    [clean] = host.report(card).tasks
    host.bind(request, provider='other', server=OTHER_SERVER, owner='another')
    # when it is clean
    host.finish(clean)
    # then the step names the server and the project that had it
    with host.db.reader() as session:
        [step] = [
            each for each in history.of(session, request, 'project') if each.event == 'handed back'
        ]
        others = history.of(session, request, 'another')
    assert (step.hostname, step.instance_uuid, step.to_state) == (NAME, SERVER, 'Bound')
    assert 'handed back' not in [each.event for each in others]


def release(host, handle):
    with transact(host.db, CAUSE) as unit:
        quarantine.release(unit, handle, 'It looks clean.')


def card_of(keys):
    """A card with a region of these parts."""
    handles = [handle(key, cleaning='full') for key in keys]
    return device(
        'fpga',
        deployable('card'),
        deployable('part', *handles, parent_name='card', is_programmable=True),
    )


@pytest.fixture
def region(host):
    """A region with three parts, two of which a server has; returns the two requests."""
    host.card = card_of('abc')
    host.report(host.card)
    requests = host.request(), host.request()
    host.bind(*requests)
    return requests


def fail(host, clean):
    for _ in range(MOST_ATTEMPTS):
        host.finish(clean, error='It cannot be blanked.')


def withheld(host):
    return host.all(models.AttachHandle.withheld)


def test_no_part_of_a_region_that_could_not_be_blanked_is_offered_before_all_are_decided(
    host, region
):
    # given that its last users left together, and that it could not be blanked
    unbind(host, *region)
    cleans = host.report(host.card).tasks
    assert [clean.is_alone for clean in cleans] == [True, True]
    for clean in cleans:
        fail(host, clean)
    first, second, _ = host.all(models.AttachHandle.uuid)
    # when an operator releases one part
    release(host, first)
    # then it is not offered yet, nor is the part that nobody had
    assert withheld(host) == ['cleaning', 'quarantined', 'cleaning']
    with pytest.raises(errors.NotQuarantined, match='all of its region'):
        with transact(host.db, CAUSE) as unit:
            quarantine.clean_again(unit, first)
    # until the operator has decided about the other one
    release(host, second)
    assert withheld(host) == [None, None, None]


def test_cyborg_manage_says_whether_a_released_part_of_a_region_is_available(
    host, region, configured, capsys
):
    conf = configured(f'[database]\nconnection = {host.db.engine.url}')
    parser = argparse.ArgumentParser()
    manage_handles.add_commands(parser.add_subparsers())

    def release(handle):
        words = 'handle', 'release', handle, '--reason', 'It looks clean.'
        options = parser.parse_args(words)
        assert options.function(conf, options) == 0
        return capsys.readouterr().out

    # given a region of which two parts are quarantined
    unbind(host, *region)
    for clean in host.report(host.card).tasks:
        fail(host, clean)
    first, second, _ = host.all(models.AttachHandle.uuid)
    # when an operator releases one of them, also if that is repeated, it is not available
    for _ in range(2):
        said = release(first)
        assert 'available again' not in said
        assert 'it is offered when all of its region is clean or released' in said
    assert withheld(host) == ['cleaning', 'quarantined', 'cleaning']
    # until the other one is released
    assert 'available again' in release(second)
    assert withheld(host) == [None, None, None]


def test_a_part_that_is_clean_does_not_offer_a_region_that_could_not_be_blanked(host, region):
    # given a part that is still cleaned when the last user of the region has left
    first, second = region
    unbind(host, first)
    unbind(host, second)
    one, whole = host.report(host.card).tasks
    assert [one.is_alone, whole.is_alone] == [False, True]
    fail(host, whole)
    # when that part is clean
    host.finish(one)
    assert withheld(host) == ['cleaning', 'quarantined', 'cleaning']
    # then the region is offered when it was blanked after all
    with transact(host.db, CAUSE) as unit:
        quarantine.clean_again(unit, whole.handle.uuid)
    [again] = host.report(host.card).tasks
    host.finish(again)
    assert withheld(host) == [None, None, None]


def test_a_new_part_of_a_region_that_could_not_be_blanked_is_not_offered_either(host, region):
    # given a region that could not be blanked
    unbind(host, *region)
    for clean in host.report(host.card).tasks:
        fail(host, clean)
    # when the host reports one more part of it
    host.report(card_of('abcd'))
    # then that waits as the others do, until an operator has decided
    assert withheld(host) == ['quarantined', 'quarantined', 'cleaning', 'cleaning']
    for uuid in host.all(models.AttachHandle.uuid)[:2]:
        release(host, uuid)
    assert withheld(host) == [None] * 4
    # and one that appears after that is offered
    host.report(card_of('abcde'))
    assert withheld(host) == [None] * 5


def test_a_bind_does_not_wait_for_a_region_about_which_an_operator_must_decide(host, region):
    unbind(host, *region)
    for clean in host.report(host.card).tasks:
        with pytest.raises(errors.HandleNotClean):
            host.bind(host.request())
        fail(host, clean)
    with pytest.raises(errors.NoFreeHandle):
        host.bind(host.request())
