# SPDX-License-Identifier: Apache-2.0
"""Registering our options."""

from oslo_config import cfg

from cyborg import conf as options


def test_each_group_is_declared_in_one_place():
    names = [group.name if group else 'DEFAULT' for group, _ in options.GROUPS]
    assert len(names) == len(set(names))


def test_an_override_in_one_configuration_is_not_seen_in_another():
    one, other = cfg.ConfigOpts(), cfg.ConfigOpts()
    for conf in (one, other):
        options.register(conf)
    one.set_override('endpoint_override', 'http://one', 'placement')
    assert other.placement.endpoint_override is None
