# SPDX-License-Identifier: Apache-2.0
"""What of a host is reserved in Placement while its agent is silent or disabled."""

import sqlalchemy as sa

from cyborg.conductor.engine import providers
from cyborg.db.sqlalchemy import devices, models
from cyborg.objects import DeviceStatus, Withheld
from tests.fixtures.reporting_host import NAME, deployable, device, handle


def figures(host, **condition):
    """Provider -> reserved and total."""
    with host.db.reader() as session:
        rows = devices.load(session, NAME)
        found = providers.tree(session, NAME, rows, **condition)
    return {each.name: (each.reserved, each.total) for each in found}


def write(host, model, **values):
    with host.db.writer() as session:
        session.execute(sa.update(model).values(**values))


def test_a_silent_agent_reserves_only_what_it_must_prepare(host):
    host.report(
        device('card', deployable('plain', 'a', 'b')),
        device('gpu', deployable('vgpu', handle('c', type='MDEV', is_host_prepared=True))),
        device('fpga', deployable('region', 'd', is_programmable=True)),
    )
    assert figures(host) == {'plain': (0, 2), 'vgpu': (0, 1), 'region': (0, 1)}
    assert figures(host, is_silent=True) == {'plain': (0, 2), 'vgpu': (1, 1), 'region': (1, 1)}


def test_a_handle_that_a_silent_agent_must_clean_is_reserved(host):
    host.report(device('card', deployable('part', 'a', 'b')))
    write(host, models.AttachHandle, withheld=Withheld.CLEANING)
    assert figures(host) == {'part': (0, 2)}
    assert figures(host, is_silent=True) == {'part': (2, 2)}


def test_a_disabled_agent_reserves_everything(host):
    host.report(device('card', deployable('part', 'a', 'b')))
    assert figures(host, is_disabled=True) == {'part': (2, 2)}


def test_a_device_in_maintenance_is_reserved(host):
    host.report(device('card', deployable('part', 'a', 'b')))
    write(host, models.Device, status=DeviceStatus.MAINTAINING)
    assert figures(host) == {'part': (2, 2)}


def test_a_quarantined_handle_is_reserved_and_so_is_what_is_cleaned_with_its_region(host):
    host.report(
        device(
            'fpga',
            deployable('card', resource_class=None),
            deployable('region', is_programmable=True, resource_class=None, parent_name='card'),
            deployable('first', 'a', parent_name='region'),
            deployable('second', 'b', parent_name='region'),
        )
    )
    with host.db.writer() as session:
        first, second = session.scalars(sa.select(models.AttachHandle).order_by('id'))
        first.withheld, second.withheld = Withheld.QUARANTINED, Withheld.CLEANING
    found = figures(host)
    assert (found['first'], found['second']) == ((1, 1), (1, 1))
