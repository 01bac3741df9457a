# SPDX-License-Identifier: Apache-2.0
"""The measurement of hot-plug measures something; how much, is for a quiet machine to say."""

import json

import pytest

from tools.bench import hotplug


@pytest.mark.embedded
def test_a_round_is_timed_from_the_slot_to_the_scheduler():
    found = hotplug.by_hook(1)
    assert json.loads(json.dumps(found)) == found
    for verb in ('plug', 'unplug'):
        assert 0 < found[verb]['median'] <= found[verb]['max']


def test_what_cannot_be_measured_is_a_line_with_its_reason():
    figures = {'median': 0.25, 'p90': 0.5, 'max': 1.0}
    lines = list(
        hotplug._table(
            {
                'rounds': 3,
                'netlink': {'skipped': 'no FUSE.'},
                'hook': {'plug': figures, 'unplug': figures},
            }
        )
    )
    assert lines[0].endswith('(3 rounds)')
    assert lines[1].split() == ['hook', 'plug', '0.250', '0.500', '1.000']
    assert lines[3] == 'netlink   skipped: no FUSE.'
