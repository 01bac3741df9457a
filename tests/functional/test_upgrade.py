# SPDX-License-Identifier: Apache-2.0
"""A host serves although its conductors are one release ahead."""

import pytest

from cyborg import objects
from tests.fixtures.cloud import Cloud, eventually
from tests.functional.test_engine import VGPU, VGPU_SETTINGS, GpuHost

pytestmark = pytest.mark.any_database


@pytest.fixture
def gpus(tmp_path):
    cloud = Cloud(tmp_path, more=f'{VGPU_SETTINGS}[conductor]\nsweep_interval = 1\n')
    cloud.start()
    cloud.gpu = cloud.host('compute1', GpuHost)
    cloud.profile('vgpu', VGPU)
    yield cloud
    cloud.stop()


def test_a_newer_version_of_a_task_does_not_make_a_host_unable_to_serve(gpus, monkeypatch):
    # given conductors whose tasks have a field more
    send = objects.Task.obj_to_primitive

    def newer(self, *arguments):
        wire = send(self, *arguments)
        wire['cyborg_object.version'] = '1.99'
        wire['cyborg_object.data']['not_invented_yet'] = 1
        return wire

    monkeypatch.setattr(objects.Task, 'obj_to_primitive', newer)
    # when a server wants a GPU of this host
    [arq] = gpus.request('vgpu')
    assert gpus.bind(arq).status_code == 202
    # then it gets one, and the host goes on to report
    eventually(lambda: [each['state'] for each in gpus.arqs()] == ['Bound'])
    assert len(gpus.gpu.mdevs()) == 1
    gpus.gpu.cards.plug_in('10de:1eb8', at='0000:40:00.0')
    eventually(lambda: any('40:00' in name for name in gpus.providers()))
