# SPDX-License-Identifier: Apache-2.0
"""Placement in this process: what it keeps, and from whom it is kept apart."""

import os
import signal
import subprocess
import sys
import threading
import uuid

import pytest
import requests

from cyborg import errors
from cyborg.clients import embedded_placement, keystone, wsgi

HEADERS = {'OpenStack-API-Version': 'placement 1.39'}


@pytest.fixture
def reached(conf):
    """A way to the Placement on a file, loaded as after a start."""

    def load(path):
        session = requests.Session()
        wsgi.mount(session, 'http://placement.local', embedded_placement.load(path))
        return keystone.connect(conf, 'placement', session)

    return load


def names(way):
    found = way.get('/resource_providers', headers=HEADERS).json()['resource_providers']
    return {row['name'] for row in found}


def create(way, name):
    return way.post('/resource_providers', json={'name': name}, headers=HEADERS).json()


def test_a_file_is_made_with_all_that_placement_knows(reached, tmp_path):
    way = reached(tmp_path / 'new.sqlite')
    traits = way.get('/traits', headers=HEADERS).json()['traits']
    assert {'OWNER_CYBORG', 'COMPUTE_NODE'} <= set(traits)
    classes = way.get('/resource_classes', headers=HEADERS).json()['resource_classes']
    assert {'FPGA', 'PGPU', 'VGPU'} <= {each['name'] for each in classes}


def test_several_files_do_not_mix(reached, tmp_path):
    ways = [reached(tmp_path / f'{n}.sqlite') for n in range(3)]
    for number, way in enumerate(ways):
        create(way, f'compute{number}')
        way.put(f'/traits/CUSTOM_{number}', headers=HEADERS)
    assert [names(way) for way in ways] == [{'compute0'}, {'compute1'}, {'compute2'}]
    for number, way in enumerate(ways):
        traits = way.get('/traits?name=startswith:CUSTOM_', headers=HEADERS).json()['traits']
        assert traits == [f'CUSTOM_{number}']
        assert 'OWNER_CYBORG' in way.get('/traits', headers=HEADERS).json()['traits']


def test_a_restart_keeps_everything(reached, tmp_path):
    create(reached(tmp_path / 'kept.sqlite'), 'compute1')
    reached(tmp_path / 'other.sqlite')
    assert names(reached(tmp_path / 'kept.sqlite')) == {'compute1'}


def test_what_was_answered_survives_a_kill(reached, tmp_path):
    program = tmp_path / 'killed.py'
    program.write_text("""
import os, pathlib, signal, sys
import webob
from cyborg.clients import embedded_placement
application = embedded_placement.load(pathlib.Path(sys.argv[1]))
for name in ('compute1', 'compute2'):
    request = webob.Request.blank('/resource_providers', method='POST', json={'name': name},
                                  content_type='application/json',
                                  headers={'X-Auth-Token': 'admin'})
    assert request.get_response(application).status_int == 201
os.kill(os.getpid(), signal.SIGKILL)
""")
    ended = subprocess.run(
        [sys.executable, program, tmp_path / 'hit.sqlite'],
        check=False,
        env=os.environ | {'PYTHONPATH': os.pathsep.join(sys.path)},
    )
    assert ended.returncode == -signal.SIGKILL
    assert names(reached(tmp_path / 'hit.sqlite')) == {'compute1', 'compute2'}


def test_many_writers_at_once_are_all_served(reached, tmp_path):
    ways = [reached(tmp_path / f'{n}.sqlite') for n in range(2)]
    statuses = []

    def work(number):
        for _ in range(5):
            provider = create(ways[number % 2], str(uuid.uuid4()))['uuid']
            statuses.append(
                ways[number % 2]
                .put(
                    f'/resource_providers/{provider}/inventories',
                    headers=HEADERS,
                    json={'resource_provider_generation': 0, 'inventories': {'FPGA': {'total': 1}}},
                    raise_exc=False,
                )
                .status_code
            )

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert statuses == 30 * [200]
    assert [len(names(way)) for way in ways] == [15, 15]


def test_a_stranger_is_not_let_in(reached, tmp_path):
    way = reached(tmp_path / 'new.sqlite')
    way.session.auth.token = 'stranger'
    assert way.get('/resource_providers', headers=HEADERS, raise_exc=False).status_code == 403


def test_a_missing_placement_is_one_sentence(tmp_path, monkeypatch):
    for name in [name for name in sys.modules if name.partition('.')[0] == 'placement']:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, 'placement', None)
    with pytest.raises(errors.ConfigError, match='pip install openstack-placement'):
        embedded_placement.load(tmp_path / 'none.sqlite')
    assert not (tmp_path / 'none.sqlite').exists()
