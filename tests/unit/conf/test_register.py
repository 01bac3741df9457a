# SPDX-License-Identifier: Apache-2.0
"""Registering our options."""

import pytest
from oslo_config import cfg

from cyborg import conf as options


@pytest.mark.parametrize('module', options.GROUPS[1:], ids=lambda module: module.__name__)
def test_each_module_speaks_for_a_section_of_its_own(module):
    assert [each.GROUP.name for each in options.GROUPS[1:]].count(module.GROUP.name) == 1


def test_an_override_in_one_configuration_is_not_seen_in_another():
    one, other = cfg.ConfigOpts(), cfg.ConfigOpts()
    for conf in (one, other):
        options.register(conf)
    one.set_override('endpoint_override', 'http://one', 'placement')
    assert other.placement.endpoint_override is None
