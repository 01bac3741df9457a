# SPDX-License-Identifier: Apache-2.0
"""The API in a real uWSGI, with the files of the installation guide and of kolla-ansible."""

import concurrent.futures
import os
import pathlib
import shutil
import signal
import sys
import urllib.parse

import pytest
import requests

from tests.fixtures import deployers
from tests.fixtures.cloud import eventually
from tests.fixtures.processes import PATIENCE, Deployment, Process
from tests.services.test_deployers import QUEUES
from tests.services.test_processes import CARD, FPGA, VGPU
from tests.unit.doc.test_installation import parsed

ROOT = pathlib.Path(__file__).parents[2]
API = 'allow_remote_noauth = true\n' + QUEUES
VENV = pathlib.Path(os.environ.get('CYBORG_TEST_UWSGI_VENV', ROOT / '.venv-uwsgi')).absolute()


def queue_managers(directory):
    """The files of the queue managers of a test, by host and command."""
    return sorted(pathlib.Path('/dev/shm').glob(f'{directory.name}_*_qmanager'))


@pytest.fixture
def not_in_uwsgi(tmp_path, broker, database, monkeypatch):
    """A deployment, before its API is one in uWSGI."""
    assert (VENV / 'bin/uwsgi').exists(), 'uWSGI is not installed; run: make .venv-uwsgi'
    # other tests on this machine have queue managers, too
    monkeypatch.setenv('OS_OSLO_MESSAGING_RABBIT__HOSTNAME', tmp_path.name)
    with Deployment(tmp_path, broker.url, database.url, conductor=QUEUES, api=API) as made:
        yield made
    for file in queue_managers(tmp_path):
        file.unlink()


@pytest.fixture
def deployment(not_in_uwsgi, tmp_path):
    """As the installation guide has it."""
    made = not_in_uwsgi
    _, *arguments = made.api.argv
    written = dict(parsed('uwsgi-ini')['uwsgi']) | {
        'home': sys.prefix,
        'pyargv': ' '.join(arguments),
        'http-socket': urllib.parse.urlsplit(made.url).netloc,
    }
    ini = tmp_path / 'etc/uwsgi.ini'
    ini.write_text('\n'.join(['[uwsgi]', *(f'{key} = {written[key]}' for key in written)]))
    made.api.argv = [str(VENV / 'bin/uwsgi'), '--ini', str(ini)]
    return made


@pytest.fixture
def kolla(not_in_uwsgi, tmp_path):
    """As kolla-ansible has it: one request per process, a router of HTTP before the processes, and
    nobody tells the application where its configuration is."""
    made = not_in_uwsgi
    etc = tmp_path / 'home/.cyborg'  # /etc/cyborg is not ours
    ini = deployers.write(
        'kolla-ansible/cyborg-api-uwsgi.ini',
        etc,
        home=sys.prefix,
        port=str(urllib.parse.urlsplit(made.url).port),
        log=str(made.api.log),
    )
    (etc / 'cyborg.conf.d').mkdir()
    shutil.copy(tmp_path / 'etc/cyborg.conf', etc)
    shutil.copy(tmp_path / 'etc/api.conf', etc / 'cyborg.conf.d')
    environ = {'HOME': str(tmp_path / 'home')}
    made.api = Process('api', [VENV / 'bin/uwsgi', ini], made.api.log, environ)
    made.apis = [made.api]
    return made


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
    commands = [file.name.split('_')[-2] for file in queue_managers(deployment.directory)]
    assert 'cyborg-api' in commands and 'uwsgi' not in commands


def test_an_api_in_uwsgi_that_cannot_start_ends(deployment):
    deployment.create_database()
    wrong = deployment.directory / 'etc/api.conf'
    wrong.write_text(wrong.read_text() + '[api]\nmax_limit = none\n')
    deployment.api.start()
    assert deployment.api.wait() != 0
    assert deployment.api.said('max_limit')


def test_the_api_runs_in_the_uwsgi_of_kolla_ansible(kolla):
    kolla.start()
    # the probes of the container and of the load balancer
    assert [requests.get(kolla.url + path, timeout=60).status_code for path in ('', '/v2')] == [
        200,
        200,
    ]
    # a server gets its accelerator
    kolla.host(more=QUEUES)
    kolla.profile('fpga', FPGA)
    [arq] = kolla.request('fpga')
    assert kolla.bind(arq).status_code == 202
    [bound] = kolla.arqs()
    assert bound['state'] == 'Bound'
    assert kolla.api.terminate() == 0
    assert not kolla.api.said('Traceback')
