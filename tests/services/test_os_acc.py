# SPDX-License-Identifier: Apache-2.0
"""os_acc in a process of its own, as nova-compute has it, over a real broker."""

import json
import subprocess
import sys
import uuid

import pytest

from tests.fixtures.cloud import eventually
from tests.fixtures.processes import PATIENCE, ROOT, Deployment

CARD = '0000:3b:00.0'
VGPU = {'resources:VGPU': '1'}
PROFILE = {'accel:device_profile': 'vgpu'}
#: how many instances live side by side
TOGETHER = 6

#: Reads calls line by line, makes them side by side, and writes what came of them. It is given
#: nothing of Cyborg but the library.
COMPUTE = """
import json, sys
from concurrent import futures
from oslo_config import cfg
import os_acc
from os_acc import client, conf

url, exchange, host = sys.argv[1:]
client.ASK_TIMEOUT = 3.0
cfg.CONF([], project='nova', default_config_files=[])
conf.register_opts(cfg.CONF)
options = {'transport_url': url, 'exchange': exchange, 'host': host, 'ready_timeout': 60}
for name, value in options.items():
    cfg.CONF.set_override(name, value, 'os_acc')


def call(function, *arguments):
    with futures.ThreadPoolExecutor(max_workers=1) as executor:
        future = executor.submit(getattr(os_acc, function), *arguments)
        try:
            return {'result': future.result()}
        except os_acc.OsAccError as error:
            return {'error': type(error).__name__, 'said': str(error)}


for line in sys.stdin:
    asked = json.loads(line)
    for name, value in asked['options'].items():
        cfg.CONF.set_override(name, value, 'os_acc')
    with futures.ThreadPoolExecutor(max_workers=len(asked['calls'])) as executor:
        answers = list(executor.map(lambda each: call(*each), asked['calls']))
    assert not any(name.partition('.')[0] == 'cyborg' for name in sys.modules)
    print(json.dumps(answers), flush=True)
"""


class Compute:
    """nova-compute's process."""

    def __init__(self, deployment, host):
        self._deployment, self.host = deployment, host
        self._process = subprocess.Popen(
            [
                sys.executable,
                *('-W', 'ignore', '-c', COMPUTE),
                *(deployment.transport, deployment._exchange, host),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )

    def begin(self, *calls, **options):
        """Make calls at once, with these options from now on."""
        self._process.stdin.write(json.dumps({'calls': calls, 'options': options}) + '\n')
        self._process.stdin.flush()

    def end(self):
        """What came of them."""
        return json.loads(self._process.stdout.readline())

    def call(self, *calls, **options):
        self.begin(*calls, **options)
        return self.end()

    def close(self):
        self._process.stdin.close()
        self._process.wait(PATIENCE)
        self._process.stdout.close()

    # -- what nova-compute does with an instance -------------------------------------------

    def plugging(self, instance, specs=PROFILE):
        return 'plug', instance, {'uuid': self._deployment.rp(self.host)}, specs

    def plug(self, instance, specs=PROFILE):
        """The mediated devices that an instance gets."""
        [answer] = self.call(self.plugging(instance, specs))
        return {each['mdev_uuid'] for each in answer['result']}

    def unplug(self, instance):
        [answer] = self.call(('unplug', instance))
        return answer['result']

    def has(self, mdevs):
        """Are these all the mediated devices that the host has, now or soon?"""
        return eventually(
            lambda: self._deployment.kernels[self.host].mdevs() == set(mdevs), PATIENCE
        )


@pytest.fixture(scope='module')
def deployment(tmp_path_factory, broker, database):
    """A conductor, and two hosts that share a GPU each; tests leave them as they find them."""
    with Deployment(tmp_path_factory.mktemp('cloud'), broker.url, database.url) as made:
        made.start()
        for name in ('compute1', 'compute2'):
            made.host(name, [CARD])
        made.profile('vgpu', VGPU)
        yield made


@pytest.fixture(scope='module')
def both(deployment):
    made = [Compute(deployment, name) for name in ('compute1', 'compute2')]
    for each in made:
        each.begin(('initialize',))
    for each in made:
        assert each.end() == [{'result': None}]
    yield made
    for each in made:
        each.close()


@pytest.fixture
def compute(both, deployment):
    yield both[0]
    assert deployment.arqs() == []
    for each in both:
        each.has([])


@pytest.fixture
def other(both, compute):
    return both[1]


def server():
    return {'uuid': str(uuid.uuid4()), 'name': 'vm', 'project_id': 'p1', 'image_uuid': None}


# -- the operations of doc/source/admin/server-operations.rst ----------------------------------


@pytest.mark.parametrize('operation', ['stop, start', 'soft delete, restore'])
def test_what_lets_go_and_comes_back_on_the_same_host(compute, deployment, operation):
    instance = server()
    compute.has(compute.plug(instance))
    assert compute.unplug(instance) == 1
    assert deployment.arqs() == []
    compute.has([])
    compute.has(compute.plug(instance))
    assert compute.unplug(instance) == 1


@pytest.mark.parametrize(
    'operation',
    [
        'pause, unpause',
        'suspend, resume',
        'lock, unlock',
        'set password',
        'crash dump',
        'reboot',
        'rebuild',
    ],
)
def test_what_makes_no_call_leaves_accelerators_attached(compute, deployment, operation):
    instance = server()
    mdevs = compute.plug(instance)
    [arq] = deployment.arqs()
    assert (arq['state'], {arq['attach_handle_uuid']}) == ('Bound', mdevs)
    compute.has(mdevs)
    # a compute service that plugs all the same gets what the instance has
    assert compute.plug(instance) == mdevs
    assert compute.unplug(instance) == 1


@pytest.mark.parametrize('operation', ['shelve, unshelve', 'cold migrate', 'resize'])
def test_what_lets_go_and_comes_back_elsewhere(compute, other, deployment, operation):
    instance = server()
    compute.has(compute.plug(instance))
    if operation == 'resize':
        # another flavor is refused as long as something is held
        [refused] = compute.call(compute.plugging(instance, VGPU))
        assert refused['error'] == 'AlreadyPlugged'
    assert compute.unplug(instance) == 1
    other.has(other.plug(instance, VGPU if operation == 'resize' else PROFILE))
    compute.has([])
    assert [arq['hostname'] for arq in deployment.arqs()] == ['compute2']
    assert other.unplug(instance) == 1


def test_evacuate_leaves_nothing_on_a_source_that_comes_back(compute, other, deployment):
    instance = server()
    held = compute.plug(instance)
    # the host goes down, and the instance is built elsewhere
    deployment.agents['compute1'].kill()
    other.has(other.plug(instance))
    assert [arq['hostname'] for arq in deployment.arqs()] == ['compute2']
    assert deployment.kernels['compute1'].mdevs() == held
    # when the source is back, it cleans up, and the instance keeps what it has
    deployment.agents['compute1'].start()
    compute.has([])
    assert other.unplug(instance) == 1


def test_a_host_that_reboots_prepares_again_what_was_plugged(compute, deployment):
    instance = server()
    mdevs = compute.plug(instance)
    deployment.agents['compute1'].kill()
    deployment.kernels['compute1'].host.reboot()
    compute.has([])
    deployment.agents['compute1'].start()
    compute.has(mdevs)
    assert compute.plug(instance) == mdevs
    assert compute.unplug(instance) == 1


# -- side by side, and with services that go away ----------------------------------------------


def test_many_instances_are_plugged_and_unplugged_side_by_side(compute, deployment):
    instances = [server() for _ in range(TOGETHER)]
    answers = compute.call(*map(compute.plugging, instances))
    mdevs = {answer['result'][0]['mdev_uuid'] for answer in answers}
    assert len(mdevs) == TOGETHER
    compute.has(mdevs)
    assert {arq['instance_uuid'] for arq in deployment.arqs()} == {
        each['uuid'] for each in instances
    }
    assert compute.call(*(('unplug', each) for each in instances)) == [{'result': 1}] * TOGETHER


def test_the_same_plug_many_times_at_once_is_one(compute, deployment):
    instance = server()
    answers = compute.call(*[compute.plugging(instance)] * TOGETHER)
    assert answers == [answers[0]] * TOGETHER
    assert len(deployment.arqs()) == 1
    assert compute.unplug(instance) == 1


def test_an_agent_that_is_killed_in_the_middle_of_plugs_loses_none(compute, deployment):
    kernel, agent = deployment.kernels['compute1'], deployment.agents['compute1']
    instances = [server() for _ in range(TOGETHER)]
    kernel.gate.clear()
    compute.begin(*map(compute.plugging, instances))
    eventually(lambda: kernel.waiting, PATIENCE)
    agent.kill()
    kernel.gate.set()
    agent.start()
    answers = compute.end()
    mdevs = {answer['result'][0]['mdev_uuid'] for answer in answers}
    assert len(mdevs) == TOGETHER
    compute.has(mdevs)
    assert compute.call(*(('unplug', each) for each in instances)) == [{'result': 1}] * TOGETHER


def test_a_conductor_that_is_killed_in_the_middle_of_plugs_loses_none(compute, deployment):
    [conductor] = deployment.conductors
    instances = [server() for _ in range(TOGETHER)]
    compute.begin(*map(compute.plugging, instances))
    conductor.restart()
    answers = compute.end()
    compute.has({answer['result'][0]['mdev_uuid'] for answer in answers})
    assert compute.call(*(('unplug', each) for each in instances)) == [{'result': 1}] * TOGETHER


def test_an_agent_that_is_absent_is_unavailable_and_undone_when_it_is_back(compute, deployment):
    instance, agent = server(), deployment.agents['compute1']
    plugging = compute.plugging(instance)
    agent.kill()
    # given a new process of nova-compute that has little patience
    impatient = Compute(deployment, 'compute1')
    try:
        [answer] = impatient.call(('initialize',), ready_timeout=1, call_timeout=1)
        assert answer['error'] == 'CyborgAgentUnavailable'
        assert 'did not answer' in answer['said']
        # plug() and unplug() say the same
        for call in (plugging, ('unplug', instance)):
            [answer] = impatient.call(call)
            assert answer['error'] == 'CyborgAgentUnavailable'
        agent.start()
        # when it is back they work without another initialize()
        eventually(lambda: impatient.call(('unplug', instance)) == [{'result': 0}], PATIENCE)
        assert impatient.call(('initialize',), ready_timeout=60) == [{'result': None}]
    finally:
        impatient.close()


# -- what is refused ---------------------------------------------------------------------------


def test_calls_before_initialize_and_bad_parameters_reach_nobody(compute, deployment):
    instance, provider = server(), {'uuid': deployment.rp()}
    new = Compute(deployment, 'compute1')
    try:
        [early] = new.call(('unplug', instance))
        assert early['error'] == 'NotInitialized'
    finally:
        new.close()
    bad = [
        ('plug', instance | {'uuid': 'x'}, provider, VGPU),
        ('plug', instance | {'name': ''}, provider, VGPU),
        ('plug', instance | {'project_id': 7}, provider, VGPU),
        ('plug', instance | {'image_uuid': 'x'}, provider, VGPU),
        ('plug', instance, {}, VGPU),
        ('plug', instance, {'uuid': 'x'}, VGPU),
        ('plug', instance, {'1': 'x'}, VGPU),
        ('plug', instance, provider, {}),
        ('plug', instance, provider, {'resources:VGPU': 1}),
        ('unplug', {'uuid': instance['uuid']}),
        ('unplug', 'x'),
    ]
    assert [answer.get('error') for answer in compute.call(*bad)] == ['InvalidArgument'] * len(bad)


@pytest.mark.parametrize(
    'provider, specs, sentence',
    [
        (None, {'accel:device_profile': 'none'}, 'Device profile not found: none'),
        (None, {'resources:VGPU': '1000'}, 'no free attach handle'),
        (None, VGPU | {'trait:CUSTOM_NO': 'required'}, 'does not fit'),
        (None, VGPU | {'accel:color': 'red'}, 'accel:color is not known'),
        (str(uuid.UUID(int=7)), PROFILE, 'No device of host compute1 has the resource provider'),
    ],
)
def test_what_cannot_be_had_is_said_and_leaves_nothing(
    compute, deployment, provider, specs, sentence
):
    selected = {'uuid': provider or deployment.rp()}
    [answer] = compute.call(('plug', server(), selected, specs))
    assert answer['error'] == 'PlugFailed'
    assert sentence in answer['said']
