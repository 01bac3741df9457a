# SPDX-License-Identifier: Apache-2.0
"""Services as processes of their own, over a real broker and a real database."""

import concurrent.futures
import contextlib
import functools
import json
import os
import pathlib
import signal
import threading
import time
import uuid

import pytest
import requests
import sqlalchemy as sa

from cyborg.conf import api
from cyborg.db.sqlalchemy import clock
from tests.fixtures import fpga
from tests.fixtures.cloud import eventually
from tests.fixtures.processes import PATIENCE, Deployment, is_there

FPGA = {'resources:FPGA': '1', 'trait:CUSTOM_FAKE_DEVICE': 'required'}
VGPU = {'resources:VGPU': '1'}
CARD = '0000:3b:00.0'
REGION = f'compute1_{fpga.ADDRESS}_region0'
#: a request of each kind, with its answer
SAMPLES = pathlib.Path(__file__).parents[2] / 'doc/source/api-ref/samples'


def default(name):
    """The default of an option of the API."""
    [found] = [option.default for option in api.OPTS if option.name == name]
    return found


def states(deployment):
    return {arq['uuid']: arq['state'] for arq in deployment.arqs()}


def test_the_whole_way_over_real_processes(deployment):
    # given a host with the fake device and one whose GPU is shared
    deployment.host('compute1')
    kernel = deployment.host('compute2', [CARD])
    deployment.profile('fpga', FPGA)
    deployment.profile('vgpu', VGPU)
    # when Nova binds a request for each
    instance = str(uuid.uuid4())
    [fpga], [vgpu] = deployment.request('fpga'), deployment.request('vgpu')
    assert deployment.bind(fpga, 'compute1', instance).status_code == 202
    assert deployment.bind(vgpu, 'compute2').status_code == 202
    # then both are bound, the mediated device is there, and Nova was told
    assert states(deployment) == {fpga['uuid']: 'Bound', vgpu['uuid']: 'Bound'}
    [bound] = [arq for arq in deployment.arqs() if arq['uuid'] == vgpu['uuid']]
    assert kernel.mdevs() == {bound['attach_handle_uuid']}
    told = deployment.nova.wait_for_events(2, PATIENCE)
    assert {event['tag'] for event in told} == {fpga['uuid'], vgpu['uuid']}
    # and when they are released nothing is left
    assert deployment.unbind(bound).status_code == 202
    path = f'/accelerator_requests?instance={instance}'
    assert deployment.call('DELETE', path).status_code == 204
    eventually(lambda: not kernel.mdevs(), PATIENCE)
    assert states(deployment) == {vgpu['uuid']: 'Unbound'}


def test_a_broker_that_does_not_know_us_is_told_in_a_sentence(tmp_path, broker, database):
    # given services that were told a wrong password
    transport = broker.url.replace(broker.password, 'wrong')
    with Deployment(tmp_path, transport, database.url) as made:
        made.create_database()
        [conductor] = made.conductors
        # when they start
        for process in (conductor, made.api):
            process.start()
        eventually(lambda: is_there(f'{made.url}/'), PATIENCE)
        # then the API is there and says so, and the conductor asks again
        assert made.call('GET', '/device_profiles').status_code == 503
        assert made.api.said('The broker refuses us, check [DEFAULT] transport_url')
        eventually(lambda: conductor.said('The broker refuses us', times=2), PATIENCE)
        assert not conductor.said('Traceback') and not made.api.said('Traceback')


@pytest.mark.parametrize('deployment', ['bind_wait = 5\n'], indirect=True)
def test_an_agent_that_is_killed_while_it_programs_does_so_when_it_is_back(deployment):
    # given an agent whose tool is at work on a region
    kernel = deployment.host(
        'compute1', [fpga.ADDRESS], model='8086:09c4', driver='intel_fpga_driver'
    )
    image, region, rp = deployment.glance.add(fpga.gbs()), REGION, deployment.rp()
    deployment.profile('fpga', {'resources:FPGA': '1'})
    [arq] = deployment.request('fpga')
    [uuid] = [
        each['uuid']
        for each in deployment.get('/deployables')['deployables']
        if each['name'] == region
    ]
    kernel.gate.clear()
    with concurrent.futures.ThreadPoolExecutor() as pool:
        answer = pool.submit(
            deployment.call,
            'PATCH',
            f'/deployables/{uuid}/program',
            json=[{'op': 'add', 'path': '/program', 'value': [{'image_uuid': image}]}],
        )
        eventually(lambda: kernel.waiting, PATIENCE)
        # when it is killed
        deployment.agents['compute1'].kill()
    # then the request says that it goes on, and nobody gets the region meanwhile
    assert answer.result().status_code == 202
    assert deployment.bind(arq, rp=rp).status_code == 409
    # and the next agent ends what was begun
    kernel.gate.set()
    deployment.agents['compute1'].start()
    eventually(lambda: deployment.get(f'/deployables/{uuid}')['bitstream_id'] == image, PATIENCE)
    function = fpga.FUNCTION.upper().replace('-', '_')
    eventually(
        lambda: (
            f'CUSTOM_FPGA_INTEL_FUNCTION_{function}' in deployment.providers()[region]['traits']
        ),
        PATIENCE,
    )
    assert deployment.bind(arq, rp=rp).status_code == 202
    assert not list(deployment.directory.glob('bitstream-*'))


# -- told to stop ----------------------------------------------------------------------------


@pytest.fixture
def slow(deployment):
    """A host that is in the middle of preparing a device for a bind which waits for it."""
    kernel = deployment.host('compute1', [CARD])
    deployment.profile('vgpu', VGPU)
    [arq] = deployment.request('vgpu')
    rp = deployment.rp()
    kernel.gate.clear()
    with concurrent.futures.ThreadPoolExecutor() as pool:
        deployment.answer = pool.submit(deployment.bind, arq, rp=rp)
        eventually(lambda: kernel.waiting, PATIENCE)
        yield deployment
        kernel.gate.set()


def test_an_api_told_to_stop_answers_what_it_was_asked(slow):
    slow.api.signal(signal.SIGTERM)
    eventually(lambda: not is_listening(slow), PATIENCE)
    assert slow.api.is_alive and not slow.answer.done()
    slow.kernels['compute1'].gate.set()
    assert slow.answer.result().status_code == 202
    assert slow.api.wait() == 0


def is_listening(deployment):
    try:
        requests.get(deployment.url, timeout=30)
    except requests.ConnectionError:
        return False
    except requests.Timeout:
        pass  # it is busy
    return True


def test_an_agent_told_to_stop_finishes_what_it_is_doing(slow):
    agent = slow.agents['compute1']
    agent.signal(signal.SIGTERM)
    slow.kernels['compute1'].gate.set()
    assert agent.wait() == 0
    assert slow.answer.result().status_code == 202
    assert set(states(slow).values()) == {'Bound'}


def test_a_conductor_told_to_stop_finishes_what_it_is_doing(deployment):
    deployment.host()
    deployment.profile('fpga', FPGA)
    [arq] = deployment.request('fpga')
    rp = deployment.rp()
    with concurrent.futures.ThreadPoolExecutor() as pool:
        with somebody_else_at(deployment, 'ext_arqs'):
            answer = pool.submit(deployment.bind, arq, rp=rp)
            eventually(lambda: is_anybody_locked(deployment), PATIENCE)
            for conductor in deployment.conductors:
                conductor.signal(signal.SIGTERM)
                eventually(functools.partial(conductor.said, 'exiting of service'), PATIENCE)
        assert answer.result().status_code == 202
    assert [conductor.wait() for conductor in deployment.conductors] == [0, 0]


@contextlib.contextmanager
def somebody_else_at(deployment, table):
    """Meanwhile nobody can change a row of the table."""
    database = sa.create_engine(deployment.database, poolclass=sa.NullPool)
    with database.begin() as connection:
        connection.execute(sa.text(f'SELECT * FROM {table} FOR UPDATE'))
        yield


def is_anybody_locked(deployment):
    time.sleep(0.2)  # the server renews this table only for those who ask less often
    return deployment.rows(
        sa.text("SELECT 1 FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT'")
    )


@pytest.mark.parametrize('away', ['broker', 'database'])
def test_without_broker_or_database_services_still_stop(deployment, request, away):
    deployment.host()
    server = request.getfixturevalue(away)
    server.stop()
    try:
        services = [deployment.api, *deployment.conductors, *deployment.agents.values()]
        assert {each.name: each.terminate() for each in services} == {
            each.name: 0 for each in services
        }
    finally:
        server.start()


# -- other signals ---------------------------------------------------------------------------


def test_new_options_are_taken_without_losing_a_request(deployment):
    deployment.host()
    services = [deployment.api, *deployment.conductors, *deployment.agents.values()]
    workers = {each.name: each.workers for each in services}
    assert not any(each.said(' DEBUG ') for each in services)
    with concurrent.futures.ThreadPoolExecutor() as pool:
        done = threading.Event()
        asked = [pool.submit(ask_until, deployment, done) for _ in range(4)]
        with (deployment.directory / 'etc/cyborg.conf').open('a') as options:
            options.write('[DEFAULT]\ndebug = true\n')
        for each in services:
            each.signal(signal.SIGHUP)
            eventually(functools.partial(each.said, ' DEBUG '), PATIENCE)
        done.set()
        answers = [answer for each in asked for answer in each.result()]
    assert set(answers) == {200}
    assert {each.name: each.workers for each in services} == workers


def ask_until(deployment, done):
    """Ask, each time as a new caller, until it is done; answers the status codes."""
    answers = []
    while not done.is_set():
        answers.append(requests.get(f'{deployment.url}/v2/devices', timeout=60).status_code)
    return answers


def test_services_tell_what_they_are_doing(deployment):
    deployment.host()
    for each in (deployment.api, *deployment.conductors, *deployment.agents.values()):
        for number, pid in enumerate((each.pid, *each.workers), start=1):
            os.kill(pid, signal.SIGUSR2)
            eventually(functools.partial(each.said, 'Guru Meditation', number), PATIENCE)
    assert deployment.answers()


# -- who holds what --------------------------------------------------------------------------


def test_workers_of_a_conductor_share_the_work_and_are_replaced(tmp_path, broker, database):
    with Deployment(tmp_path, broker.url, database.url, conductor='workers = 2\n') as deployment:
        deployment.start()
        [conductor] = deployment.conductors
        eventually(lambda: len(conductor.workers) == 2, PATIENCE)
        first, second = conductor.workers
        os.kill(first, signal.SIGKILL)
        eventually(lambda: len(set(conductor.workers) - {first}) == 2, PATIENCE)
        assert second in conductor.workers
        assert set(ask_times(deployment, 20)) == {200}


def ask_times(deployment, times):
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        return list(
            pool.map(lambda _: deployment.call('GET', '/devices').status_code, range(times))
        )


def test_only_conductors_know_and_use_the_database(deployment, database):
    deployment.host('compute1')
    deployment.host('compute2', [CARD])
    others = [deployment.api, *deployment.agents.values()]
    secrets = {database.password, deployment.database.database}
    for service in others:
        told = [path for path in service.argv if path.endswith('.conf')] + [
            f'/proc/{pid}/environ' for pid in (service.pid, *service.workers)
        ]
        assert not any(
            secret in pathlib.Path(path).read_text() for secret in secrets for path in told
        )
    users = processes_connected_to(database.port)
    assert users & {pid for each in deployment.conductors for pid in each.workers}
    assert not users & {pid for each in others for pid in (each.pid, *each.workers)}


def processes_connected_to(port):
    """The processes that hold a connection to a port of this machine."""
    inodes = set()
    for line in pathlib.Path('/proc/net/tcp').read_text().splitlines()[1:]:
        fields = line.split()
        if int(fields[2].rpartition(':')[2], 16) == port:
            inodes.add(f'socket:[{fields[9]}]')
    found = set()
    for process in pathlib.Path('/proc').glob('[0-9]*'):
        with contextlib.suppress(OSError):  # processes come and go
            for link in (process / 'fd').iterdir():
                with contextlib.suppress(OSError):  # so do their files
                    if os.readlink(link) in inodes:
                        found.add(int(process.name))
    return found


# -- no conductor ----------------------------------------------------------------------------

#: what an API has whose operator sets nothing; other tests have options of their own
DEFAULTS = f"""\
bind_wait = {default('bind_wait')}
call_monitor_timeout = {default('call_monitor_timeout')}
read_timeout = {default('read_timeout')}
[DEFAULT]
rpc_response_timeout = 60
"""


@pytest.mark.parametrize('deployment', [DEFAULTS], ids=['defaults'], indirect=True)
def test_without_a_conductor_every_request_is_answered_within_five_seconds(deployment):
    # given an API whose conductors were killed
    for conductor in deployment.conductors:
        conductor.kill()

    # when a client makes any request that the API reference has
    def ask(sample):
        made = json.loads(sample.read_text())['request']
        begin = time.monotonic()
        answer = deployment.call(
            made['method'], made['path'].removeprefix('/v2'), json=made['body']
        )
        return sample.stem, answer, time.monotonic() - begin

    samples = sorted(SAMPLES.glob('*.json'))
    assert samples
    with concurrent.futures.ThreadPoolExecutor(max_workers=4) as pool:
        answers = list(pool.map(ask, samples))
    # then it soon hears that it has to come again
    for name, answer, took in answers:
        asked = f'{name} after {took:.1f} s: {answer.status_code} {answer.text}'
        assert answer.status_code == 503 and 'Retry-After' in answer.headers, asked
        assert took < 5, asked


# -- servers that come late, or go and come back ---------------------------------------------


@pytest.mark.parametrize('late', ['broker', 'database'])
def test_services_that_start_first_wait(tmp_path, broker, database, request, late):
    server = request.getfixturevalue(late)
    with Deployment(tmp_path, broker.url, database.url) as deployment:
        deployment.create_database()
        server.stop()
        try:
            for process in deployment.processes:
                process.start()
            [conductor] = deployment.conductors
            eventually(lambda: conductor.said('Connection refused'), PATIENCE)
        finally:
            server.start()
        eventually(deployment.answers, PATIENCE)
        deployment.host()
        assert all(process.is_alive for process in deployment.processes)


@pytest.mark.parametrize(
    'lost, end',
    [('broker', 'stop'), ('broker', 'kill'), ('database', 'stop'), ('database', 'kill')],
)
def test_services_outlive_the_loss_of_a_server(deployment, request, lost, end):
    # given a bound request
    kernel = deployment.host('compute1', [CARD])
    deployment.profile('vgpu', VGPU)
    before, after = (deployment.request('vgpu')[0] for _ in range(2))
    rp = deployment.rp()
    assert deployment.bind(before, rp=rp).status_code == 202
    workers = {each.name: each.workers for each in deployment.processes}
    # when the server goes
    server = request.getfixturevalue(lost)
    getattr(server, end)()
    try:
        # then callers hear of it, instead of waiting
        answer = deployment.call('GET', '/devices')
        assert answer.status_code == 503 and 'try again later' in answer.text
        assert deployment.bind(after, rp=rp).status_code == 503
        time.sleep(5)
    finally:
        server.start()
    # and when it is back everything goes on, by itself
    back = clock.now()
    eventually(lambda: deployment.heartbeat('compute1') > back, PATIENCE)
    eventually(deployment.answers, PATIENCE)
    assert deployment.bind(after, rp=rp).status_code == 202
    eventually(lambda: set(states(deployment).values()) == {'Bound'}, PATIENCE)
    assert kernel.mdevs() == {arq['attach_handle_uuid'] for arq in deployment.arqs()}
    assert {each.name: each.workers for each in deployment.processes} == workers
