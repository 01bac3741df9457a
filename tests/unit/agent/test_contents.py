# SPDX-License-Identifier: Apache-2.0
"""The content of deployables in reports, beside tasks that load images."""

from unittest import mock

import pytest
from oslo_config import cfg

from cyborg import conf as options
from cyborg import objects
from cyborg.accelerator.driver import Driver
from cyborg.agent.driver_guard import Guard
from cyborg.agent.inventory import Inventory
from cyborg.sim.host import Host

CONTENT = {'function': 'gzip'}


class Regions(Driver):
    name, type = 'regions', 'FPGA'

    def discover(self):
        for key in ('one', 'two'):
            part = objects.Deployable(name=key, content=CONTENT)
            yield objects.Device(
                key=key, type='FPGA', vendor='8086', driver_name='', deployables=[part]
            )


@pytest.mark.parametrize(
    ('before', 'meanwhile'),
    [({'one'}, set()), (set(), {'one'})],
    ids=['queued before the look', 'begun and ended during the look'],
)
def test_content_is_not_reported_if_an_image_may_have_been_loaded_since_it_was_read(
    tmp_path, before, meanwhile
):
    conf = cfg.ConfigOpts()
    options.register(conf)
    conf([], default_config_files=[], default_config_dirs=[])
    worker = mock.Mock(count=7, prepared={}, cards_being_programmed=before)
    worker.changing.return_value = worker.in_flux.return_value = []
    worker.cards_programmed.side_effect = lambda since: meanwhile if since == 7 else set()
    worker.lost.return_value = {}
    sysfs = Host(tmp_path / 'sys').sysfs
    guards = [Guard(Regions(conf, sysfs), 60)]
    report = Inventory(conf, 'compute1', guards, mock.Mock(), mock.Mock(), worker, sysfs)._discover(
        set()
    )
    assert [device.deployables[0].content for device in report.devices] == [{}, CONTENT]
