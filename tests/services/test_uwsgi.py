# SPDX-License-Identifier: Apache-2.0
"""The API in a real uWSGI, with the file of the installation guide."""

import concurrent.futures
import os
import pathlib
import signal
import socket
import sys
import urllib.parse

import pytest

from tests.fixtures.cloud import eventually
from tests.fixtures.processes import PATIENCE, Deployment
from tests.services.test_deployers import QUEUES
from tests.services.test_processes import CARD, FPGA, VGPU
from tests.unit.doc.test_installation import parsed

ROOT = pathlib.Path(__file__).parents[2]
API = 'allow_remote_noauth = true\n' + QUEUES
VENV = pathlib.Path(os.environ.get('CYBORG_TEST_UWSGI_VENV', ROOT / '.venv-uwsgi')).absolute()


@pytest.fixture
def deployment(tmp_path, broker, database):
    assert (VENV / 'bin/uwsgi').exists(), 'uWSGI is not installed; run: make .venv-uwsgi'
    with Deployment(tmp_path, broker.url, database.url, conductor=QUEUES, api=API) as made:
        _, *arguments = made.api.argv
        written = dict(parsed('uwsgi-ini')['uwsgi']) | {
            'home': sys.prefix,
            'pyargv': ' '.join(arguments),
            'http-socket': urllib.parse.urlsplit(made.url).netloc,
        }
        ini = tmp_path / 'etc/uwsgi.ini'
        ini.write_text('\n'.join(['[uwsgi]', *(f'{key} = {written[key]}' for key in written)]))
        made.api.argv = [str(VENV / 'bin/uwsgi'), '--ini', str(ini)]
        yield made
        for file in pathlib.Path('/dev/shm').glob(f'{socket.gethostname()}_cyborg-api_qmanager'):
            file.unlink()


def test_an_api_in_uwsgi_that_is_stopped_answers_what_it_was_asked(deployment):
    # given a bind that waits for its host
    deployment.start()
    kernel = deployment.host('compute1', [CARD], more=f'{QUEUES}[agent]\n')
    deployment.profile('vgpu', VGPU)
    [arq] = deployment.request('vgpu')
    rp = deployment.rp()
    kernel.gate.clear()
    with concurrent.futures.ThreadPoolExecutor() as pool:
        answer = pool.submit(deployment.bind, arq, rp=rp)
        try:
            eventually(lambda: kernel.waiting, PATIENCE)
            # when an operator stops the API
            deployment.api.signal(signal.SIGTERM)
            eventually(lambda: deployment.api.said('Gracefully killing worker'), PATIENCE)
            assert deployment.api.is_alive and not answer.done()
        finally:
            kernel.gate.set()
        # then it answers before it ends
        assert answer.result().status_code == 202
    assert deployment.api.wait() == 0


def test_in_uwsgi_the_queues_have_the_name_of_the_api(deployment):
    # given the queue manager of kolla-ansible, on a host where other services run in uWSGI, too
    deployment.start()
    deployment.host(more=QUEUES)
    deployment.profile('fpga', FPGA)
    [arq] = deployment.request('fpga')
    assert deployment.bind(arq).status_code == 202
    # then our file is no other service's
    shared = pathlib.Path('/dev/shm')
    assert (shared / f'{socket.gethostname()}_cyborg-api_qmanager').exists()


def test_an_api_in_uwsgi_that_cannot_start_ends(deployment):
    deployment.create_database()
    wrong = deployment.directory / 'etc/api.conf'
    wrong.write_text(wrong.read_text() + '[api]\nmax_limit = none\n')
    deployment.api.start()
    assert deployment.api.wait() != 0
    assert deployment.api.said('max_limit')
