# SPDX-License-Identifier: Apache-2.0
"""The attributes of deployables as clients see them."""

import json

import pytest

from cyborg import objects
from cyborg.db.sqlalchemy import deployables
from tests.fixtures.reporting_host import Host, deployable, device


@pytest.fixture
def host(db):
    return Host(db)


def region(*functions):
    """A region with one trait, and one attribute and one trait for each of its functions."""
    found = [('function_uuid', each) for each in functions] + [('region_type_uuid', 'region')]
    return device(
        'fpga',
        deployable(
            'part',
            'a',
            traits=['CUSTOM_A', *(f'CUSTOM_{each.upper()}' for each in functions)],
            attributes=[objects.Attribute(key=key, value=value) for key, value in found],
        ),
    )


def shown(host):
    with host.db.reader() as session:
        [part] = deployables.find(session, {}, {})
    return [next(iter(each)) for each in json.loads(part.attribute_list)]


def test_attributes_are_shown_in_one_order_whichever_came_first(host):
    host.report(region('gzip'))
    at_first = shown(host)
    # a function that goes and comes leaves its rows at the end
    host.report(region())
    host.report(region('gzip'))
    assert shown(host) == at_first
    assert [key for key in at_first if key.startswith('trait')] == ['trait0', 'trait1']
    assert at_first[-2:] == ['function_uuid', 'region_type_uuid']
