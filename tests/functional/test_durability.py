# SPDX-License-Identifier: Apache-2.0
"""A process may be killed at any time: what it answered is still there afterwards."""

import pathlib
import signal
import subprocess
import sys
import uuid

import pytest
import requests

from tests.fixtures.cloud import PATIENCE, eventually
from tools.services.server import free_port

pytestmark = pytest.mark.embedded
BIN = pathlib.Path(sys.executable).parent
INSTANCE = str(uuid.uuid4())


class Process:
    """cyborg-standalone run, as an operator starts it."""

    def __init__(self, directory):
        self.directory = directory
        self.port = free_port()
        self.url = f'http://127.0.0.1:{self.port}/v2'

    def start(self):
        self._process = subprocess.Popen(
            [
                BIN / 'cyborg-standalone',
                'run',
                '--state-dir',
                self.directory,
                '--port',
                str(self.port),
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        eventually(self._answers)

    def _answers(self):
        assert self._process.poll() is None, 'it ended'
        try:
            return len(self.get('/devices')['devices']) == 5
        except (requests.RequestException, KeyError):  # not there, or not all of it
            return False

    def end(self, number):
        self._process.send_signal(number)
        return self._process.wait(PATIENCE)

    def get(self, path):
        return requests.get(self.url + path, timeout=PATIENCE).json()

    def send(self, method, path, body):
        response = requests.request(method, self.url + path, json=body, timeout=PATIENCE)
        assert response.ok, response.text
        return response.json() if response.content else None


@pytest.fixture
def process(tmp_path):
    process = Process(tmp_path)
    process.start()
    yield process
    process.end(signal.SIGKILL)


def picture(process):
    return {
        'devices': {device['uuid'] for device in process.get('/devices')['devices']},
        'profiles': process.get('/device_profiles')['device_profiles'],
        'arqs': {
            arq['uuid']: (arq['instance_uuid'], arq['attach_handle_uuid'])
            for arq in process.get('/accelerator_requests')['arqs']
        },
    }


def test_nothing_is_lost_by_a_kill(process):
    process.send(
        'POST',
        '/device_profiles',
        [
            {
                'name': 'vgpu',
                'groups': [{'resources:VGPU': '1', 'trait:CUSTOM_NVIDIA_1EB8_T4_2Q': 'required'}],
            }
        ],
    )
    [arq] = process.send('POST', '/accelerator_requests', {'device_profile_name': 'vgpu'})['arqs']
    deployables = process.get('/deployables')['deployables']
    rp = next(each['rp_uuid'] for each in deployables if each['name'].endswith('3b:00.0'))
    process.send(
        'PATCH',
        '/accelerator_requests',
        {
            arq['uuid']: [
                {'op': 'add', 'path': '/hostname', 'value': 'compute1'},
                {'op': 'add', 'path': '/device_rp_uuid', 'value': rp},
                {'op': 'add', 'path': '/instance_uuid', 'value': INSTANCE},
            ]
        },
    )
    before = picture(process)
    assert before['arqs'] and before['profiles'] and before['devices']
    process.end(signal.SIGKILL)
    process.start()
    assert picture(process) == before
    # the simulated host came back without its mediated devices, and the agent made them anew
    eventually(lambda: process.get(f'/accelerator_requests/{arq["uuid"]}')['state'] == 'Bound')


def test_told_to_stop_it_ends_by_itself(process):
    assert process.end(signal.SIGTERM) == 0
