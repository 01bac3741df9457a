# SPDX-License-Identifier: Apache-2.0
"""How a standalone starts: again with its data, and with hosts that somebody has described."""

import json
import uuid

import pytest

from tests.fixtures.bench import VGPUS, running
from tests.fixtures.cloud import eventually

pytestmark = pytest.mark.embedded
#: a server whose build did not end before the standalone did
KILLED = {'id': str(uuid.uuid4()), 'name': 'killed', 'profile': None, 'status': 'BUILD'}


def test_servers_and_requests_are_there_after_a_restart(tmp_path):
    with running(tmp_path / 'data') as bench:
        bench.control('boot', profile=bench.profile(VGPUS), name='old')
    kept = tmp_path / 'data/servers.json'
    kept.write_text(json.dumps([*json.loads(kept.read_text()), KILLED]))
    with running(tmp_path / 'data') as bench:
        assert 'was stopped while' in bench.server('killed')['fault']
        server = bench.server('old')
        assert server['status'] == 'ACTIVE'
        instance = f'/v2/accelerator_requests?instance={server["id"]}'
        eventually(lambda: {arq['state'] for arq in bench.get(instance)['arqs']} == {'Bound'})
        assert bench.control('delete', server=server['id']).endswith('is deleted.')


def test_hosts_are_built_from_descriptions_for_the_drivers_that_are_named(tmp_path):
    for number, card in enumerate(('1d9b:0400', '8086:37c8'), 1):
        (tmp_path / f'{number}.yaml').write_text(
            f'cards: [{{model: "{card}", at: "0000:1{number}:00.0"}}]'
        )
    with running(
        tmp_path / 'data',
        descriptions=[tmp_path / '1.yaml', tmp_path / '2.yaml'],
        drivers=['time_sync_driver'],
    ) as bench:
        assert [host['hostname'] for host in bench.get('/control')['hosts']] == [
            'compute1',
            'compute2',
        ]
        devices = bench.get('/v2/devices')['devices']
        assert [(each['hostname'], each['type']) for each in devices] == [('compute1', 'HPTS')]
        assert bench.control('reboot') == 'Name a host. There are compute1, compute2.'
        assert bench.control('reboot', hostname='compute2') == 'compute2 was rebooted.'
