# SPDX-License-Identifier: Apache-2.0
"""Checks of cyborg-status that need no deployment."""

import importlib.metadata

import pytest

from cyborg.cmd import startup, status


@pytest.fixture
def check(monkeypatch):
    """What is said of a release of oslo.messaging."""

    def check(release, is_managed=False):
        monkeypatch.setattr(importlib.metadata, 'version', {'oslo.messaging': release}.get)
        status._uses_queue_manager()  # which registers the option
        startup.CONF.set_override('use_queue_manager', is_managed, 'oslo_messaging_rabbit')
        return status.Checks()._libraries()

    yield check
    startup.CONF.clear_override('use_queue_manager', 'oslo_messaging_rabbit')


@pytest.mark.parametrize(
    ('release', 'is_slow'),
    [('17.3.0', True), ('18.1.0', True), ('18.2.0', False), ('18.3.1', False), ('19.0.0', False)],
)
def test_a_release_that_looks_for_answers_every_half_second_is_named(check, release, is_slow):
    told = check(release)
    assert told.code == (status.CODE.WARNING if is_slow else status.CODE.SUCCESS)
    assert ('every 0.5 s' in told.details) is is_slow and release in told.details


@pytest.mark.parametrize(
    ('release', 'is_mixed_up'),
    [
        ('17.3.1', True),
        ('17.3.2', False),
        ('17.4.0', False),
        ('18.2.0', True),
        ('18.3.0', True),
        ('18.3.1', False),
        ('19.0.0', False),
    ],
)
def test_a_release_that_mixes_up_managed_queues_is_named(check, release, is_mixed_up):
    assert ('use_queue_manager' in check(release, is_managed=True).details) is is_mixed_up
    assert 'use_queue_manager' not in check(release).details
