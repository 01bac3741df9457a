# SPDX-License-Identifier: Apache-2.0
"""A bind that a host must prepare is answered when it is known how that ends."""

import threading
import uuid

import pytest

import os_acc
from cyborg.sim.host import Host
from tests.fixtures.cloud import PATIENCE, Cloud, eventually

INSTANCE = str(uuid.uuid4())
VGPU = '[gpu_devices]\nenabled_vgpu_types = nvidia-222\n'


class GpuHost(Host):
    """A host with a graphics card that guests share, and whose kernel can be held up."""

    def __init__(self, name, directory):
        directory.mkdir(parents=True, exist_ok=True)
        super().__init__(directory)
        self.name, self.drivers = name, ('nvidia_gpu_driver',)
        self.plug_in('10de:1eb8', at='0000:3b:00.0')
        self._write, self.sysfs.writer = self.sysfs.writer, self._write_when_allowed
        self.goes_on, self.is_broken = threading.Event(), False
        self.goes_on.set()

    def _write_when_allowed(self, *args):
        self.goes_on.wait()
        if self.is_broken:
            raise OSError(5, 'No power')
        self._write(*args)


@pytest.fixture(params=[PATIENCE])
def cloud(request, tmp_path):
    made = Cloud(tmp_path, more=f'{VGPU}[api]\nbind_wait = {request.param}\n')
    made.start()
    yield made
    made.stop()


@pytest.fixture
def host(cloud):
    host = cloud.host(make=GpuHost)
    cloud.profile('two', {'resources:VGPU': '2'})
    yield host
    host.goes_on.set()


def test_the_answer_comes_when_the_host_is_done(cloud, host):
    assert cloud.bind(cloud.request('two'), instance=INSTANCE).status_code == 202
    arqs = cloud.arqs(instance=INSTANCE, bind_state='resolved')
    assert [(arq['state'], arq['attach_handle_type']) for arq in arqs] == [('Bound', 'MDEV')] * 2


def test_the_answer_says_why_the_host_could_not(cloud, host):
    host.is_broken = True
    answer = cloud.bind(cloud.request('two'), instance=INSTANCE)
    assert answer.status_code == 409
    assert 'No power' in answer.text
    assert {arq['state'] for arq in cloud.arqs()} == {'BindFailed'}


def test_a_server_whose_bind_failed_has_no_requests_and_nova_can_delete_them(cloud, host):
    """It would start without its devices, for it takes a failure for an end like any other."""
    host.is_broken = True
    assert cloud.bind(cloud.request('two'), instance=INSTANCE).status_code == 409
    assert cloud.arqs(instance=INSTANCE) == []
    shown = cloud.arqs()
    assert [(arq['state'], arq['instance_uuid']) for arq in shown] == [('BindFailed', None)] * 2
    steps = cloud.get(f'/accelerator_requests/{shown[0]["uuid"]}/history')['history']
    assert steps[-1]['instance_uuid'] == INSTANCE and 'No power' in steps[-1]['reason']
    assert cloud.call('DELETE', f'/accelerator_requests?instance={INSTANCE}').status_code == 204
    assert cloud.arqs() == []


def test_what_the_host_still_cleans_can_be_had_when_it_is_clean(cloud, host):
    cloud.profile('all', {'resources:VGPU': '16'})
    rp = cloud.rp()
    assert cloud.bind(cloud.request('all'), rp=rp, instance=INSTANCE).status_code == 202
    host.goes_on.clear()
    assert cloud.call('DELETE', f'/accelerator_requests?instance={INSTANCE}').status_code == 204
    arqs, answers = cloud.request('two'), []
    binding = threading.Thread(
        target=lambda: answers.append(cloud.bind(arqs, rp=rp, instance=INSTANCE))
    )
    binding.start()
    host.goes_on.set()
    binding.join()
    assert [answer.status_code for answer in answers] == [202]
    assert {arq['state'] for arq in cloud.arqs(instance=INSTANCE)} == {'Bound'}


def test_what_is_left_of_a_failed_unshelve_makes_way_though_it_must_be_cleaned(cloud, host):
    cloud.profile('all', {'resources:VGPU': '16'})
    left, rp = cloud.request('all'), cloud.rp()
    assert cloud.bind(left, rp=rp, instance=INSTANCE).status_code == 202
    cloud.nova.offloaded.add(INSTANCE)
    arqs = cloud.request('all')
    assert cloud.bind(arqs, rp=rp, instance=INSTANCE).status_code == 202
    assert {arq['uuid'] for arq in cloud.arqs()} == {arq['uuid'] for arq in arqs}
    assert {arq['state'] for arq in cloud.arqs()} == {'Bound'}


def test_a_server_that_has_all_of_a_card_can_be_stopped_and_started_at_once(cloud, host):
    os_acc.initialize(cloud.standalone.conf, host='compute1', transport=cloud.standalone.transport)
    server, place = {'uuid': INSTANCE, 'name': 'vm', 'project_id': 'p'}, {'uuid': cloud.rp()}
    for _ in range(3):
        assert len(os_acc.plug(server, place, {'resources:VGPU': '16'})) == 16
        assert os_acc.unplug(server) == 16


@pytest.mark.parametrize('cloud', [0], indirect=True)
def test_a_host_that_does_not_end_cleaning_is_told(cloud, host):
    cloud.profile('all', {'resources:VGPU': '16'})
    rp, arqs = cloud.rp(), cloud.request('all')
    assert cloud.bind(arqs, rp=rp, instance=INSTANCE).status_code == 202
    eventually(lambda: {arq['state'] for arq in cloud.arqs()} == {'Bound'})
    host.goes_on.clear()
    assert cloud.call('DELETE', f'/accelerator_requests?instance={INSTANCE}').status_code == 204
    answer = cloud.bind(cloud.request('two'), rp=rp)
    assert answer.status_code == 409 and 'try again in a moment' in answer.text
    host.goes_on.set()


@pytest.mark.parametrize('cloud', [0], indirect=True)
def test_the_answer_does_not_come_later_than_the_operator_allows(cloud, host):
    host.goes_on.clear()
    assert cloud.bind(cloud.request('two'), instance=INSTANCE).status_code == 202
    assert {arq['state'] for arq in cloud.arqs(instance=INSTANCE)} == {'BindStarted'}
    resolved = f'/accelerator_requests?instance={INSTANCE}&bind_state=resolved'
    answer = cloud.call('GET', resolved)
    assert answer.status_code == 423
    assert 'Not resolved yet' in answer.text
    host.goes_on.set()
    eventually(lambda: cloud.call('GET', resolved).status_code == 200)
    assert {arq['state'] for arq in cloud.arqs(instance=INSTANCE)} == {'Bound'}


def test_a_request_that_is_deleted_meanwhile_is_not_found(cloud, host):
    host.goes_on.clear()
    arqs, answers = cloud.request('two'), []
    binding = threading.Thread(
        target=lambda: answers.append(cloud.bind(arqs, instance=INSTANCE).status_code)
    )
    binding.start()
    eventually(lambda: cloud.arqs(instance=INSTANCE))
    assert cloud.call('DELETE', f'/accelerator_requests?instance={INSTANCE}').status_code == 204
    binding.join()
    assert answers == [404]
