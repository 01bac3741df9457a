# SPDX-License-Identifier: Apache-2.0
"""A card, clean-up or call that fails or hangs does not affect the rest of its host."""

import datetime
import threading
import uuid
from concurrent import futures

import pytest
import sqlalchemy as sa

import os_acc
from cyborg import errors
from cyborg.accelerator import mdev
from cyborg.accelerator.drivers import nvidia_vfio
from cyborg.agent.rpcapi import AgentAPI
from cyborg.db.sqlalchemy import clock, models
from tests.fixtures.cloud import PATIENCE, Cloud, eventually
from tests.functional import test_vgpus
from tests.functional.test_engine import VGPU, VGPU_SETTINGS, GpuHost, owed

CARDS = ('0000:3b:00.0', '0000:5e:00.0')


@pytest.fixture
def gpus(request, tmp_path):
    more = getattr(request, 'param', '')
    cloud = Cloud(
        tmp_path,
        more=f'{VGPU_SETTINGS}[conductor]\nsweep_interval = 1\n'
        f'[agent]\nresync_interval = 1\n{more}',
    )
    cloud.start()
    cloud.gpu = cloud.host('compute1', GpuHost, cards=CARDS)
    cloud.profile('vgpu', VGPU)
    yield cloud
    cloud.stop()


@pytest.fixture
def stuck(monkeypatch):
    """Mediated devices that cannot be removed."""
    remove, busy = mdev.remove, set()

    def refuse(sysfs, uuid):
        if uuid in busy:
            raise errors.DriverFailed('The card is busy.')
        remove(sysfs, uuid)

    monkeypatch.setattr(mdev, 'remove', refuse)
    return busy


def bind(cloud, name=CARDS[0], profile='vgpu'):
    arqs = cloud.request(profile)
    assert cloud.bind(arqs, rp=cloud.rp(name=name)).status_code == 202
    wanted = [arq['uuid'] for arq in arqs]
    return [arq for arq in cloud.arqs() if arq['uuid'] in wanted]


def attempts(cloud, handle, count=None):
    """How often work on a handle failed; ``count``: pretend that it was so often."""
    with cloud.standalone.db.writer() as session:
        if count is not None:
            session.execute(
                sa.update(models.Task)
                .where(models.Task.handle_uuid == handle, models.Task.state == 'open')
                .values(attempts=count)
            )
        return (
            session.scalar(
                sa.select(models.Task.attempts).where(
                    models.Task.handle_uuid == handle, models.Task.state == 'open'
                )
            )
            or 0
        )


def missing(cloud):
    with cloud.standalone.db.reader() as session:
        return list(
            session.scalars(
                sa.select(models.AttachHandle.key).where(models.AttachHandle.is_missing)
            )
        )


# -- one clean-up that does not succeed ------------------------------------------------------


def test_a_clean_up_does_not_wait_for_one_that_goes_on_failing(gpus, stuck, monkeypatch):
    # given a clean-up that failed often, so that it waits for minutes
    [first], [second] = bind(gpus), bind(gpus)
    stuck.add(first['attach_handle_uuid'])
    gpus.unbind(first)
    eventually(lambda: attempts(gpus, first['attach_handle_uuid']))
    gpus.standalone.remove_host('compute1')
    attempts(gpus, first['attach_handle_uuid'], 10)
    # when the host starts with another one to do
    with monkeypatch.context() as patch:
        patch.setattr(AgentAPI, 'perform', lambda *args: None)
        gpus.unbind(second)
    gpus.standalone.add_host(gpus.gpu)
    # then that is done, while the first still waits
    eventually(lambda: gpus.gpu.mdevs() == {first['attach_handle_uuid']})
    eventually(lambda: [row.uuid for row in owed(gpus)] == [first['attach_handle_uuid']])
    assert attempts(gpus, first['attach_handle_uuid']) == 10


def test_mdevs_are_compared_while_a_clean_up_goes_on_failing(gpus, stuck):
    # given a clean-up that never succeeds
    [first], [second] = bind(gpus), bind(gpus)
    stuck.add(first['attach_handle_uuid'])
    gpus.unbind(first)
    eventually(lambda: attempts(gpus, first['attach_handle_uuid']))
    # when somebody removes the device of a running server
    lost = second['attach_handle_uuid']
    (gpus.gpu.sysfs / mdev.DEVICES / lost).write('remove', '1')
    # then it is made again
    eventually(lambda: lost in gpus.gpu.mdevs())

    def states():
        path = f'/accelerator_requests/{second["uuid"]}/history'
        return [step['to_state'] for step in gpus.get(path)['history']]

    eventually(lambda: states() == ['Initial', 'BindStarted', 'Bound', 'Provisioning', 'Bound'])


# -- one card that does not answer -----------------------------------------------------------


@pytest.mark.parametrize('gpus', ['driver_timeout = 600\n[api]\nbind_wait = 0\n'], indirect=True)
def test_a_card_is_served_while_another_one_does_not_answer(gpus, monkeypatch):
    gate, create = threading.Event(), mdev.create
    begun = []

    def hang(parent, kind, uuid):
        if parent.name == CARDS[0]:
            begun.append(uuid)
            gate.wait(PATIENCE)
        create(parent, kind, uuid)

    monkeypatch.setattr(mdev, 'create', hang)
    for _ in range(8):
        bind(gpus)
    eventually(lambda: begun)
    [arq] = bind(gpus, CARDS[1])
    eventually(lambda: gpus.arqs(instance=arq['instance_uuid'])[0]['state'] == 'Bound')
    assert len(begun) == 1
    gate.set()
    eventually(lambda: {arq['state'] for arq in gpus.arqs()} == {'Bound'})


# -- a host that waits -----------------------------------------------------------------------


def silence(cloud, **more):
    """As if nothing had been heard of the host for a day."""
    with cloud.standalone.db.writer() as session:
        session.execute(
            sa.update(models.Agent).values(
                last_heartbeat=clock.now() - datetime.timedelta(days=1), **more
            )
        )


def assert_is_heard_of(cloud):
    silence(cloud)
    eventually(lambda: cloud.get('/agents/compute1')['alive'])
    silence(cloud, digest='what an operator changed')
    eventually(lambda: cloud.get('/agents/compute1')['alive'])


def test_a_host_is_heard_of_while_placement_does_not_answer(gpus, monkeypatch):
    session, gate, begun = gpus.standalone.placement.session.session, threading.Event(), []
    send = session.send

    def hang(*arguments, **options):
        begun.append(arguments)
        gate.wait(PATIENCE)
        return send(*arguments, **options)

    gpus.rest()
    with monkeypatch.context() as patch:
        patch.setattr(session, 'send', hang)
        gpus.agent().inventory.wake(must_report=True)
        eventually(lambda: begun)
        assert_is_heard_of(gpus)
        gate.set()


@pytest.mark.parametrize('gpus', ['driver_timeout = 600\n'], indirect=True)
def test_a_host_is_heard_of_while_a_driver_does_not_answer(gpus, monkeypatch):
    [guard] = gpus.agent().worker._guards.values()
    discover, gate, begun = guard._driver.discover, threading.Event(), []

    def hang():
        begun.append(True)
        gate.wait(PATIENCE)
        return discover()

    gpus.rest()
    with monkeypatch.context() as patch:
        patch.setattr(guard._driver, 'discover', hang)
        gpus.agent().inventory.wake(must_report=True)
        eventually(lambda: begun)
        assert_is_heard_of(gpus)
        gate.set()


@pytest.mark.parametrize('gpus', ['[DEFAULT]\nexecutor_thread_pool_size = 2\n'], indirect=True)
def test_plugs_that_wait_for_their_host_leave_it_its_threads(gpus, monkeypatch):
    gate, create = threading.Event(), mdev.create

    def hang(*arguments):
        gate.wait(PATIENCE)
        create(*arguments)

    monkeypatch.setattr(mdev, 'create', hang)
    os_acc.initialize(gpus.standalone.conf, host='compute1', transport=gpus.standalone.transport)
    provider, instances = (
        {'uuid': gpus.rp(name=CARDS[0])},
        [
            {'uuid': str(uuid.uuid4()), 'name': 'vm', 'project_id': 'p', 'image_uuid': None}
            for _ in range(6)
        ],
    )
    with futures.ThreadPoolExecutor(6) as callers:
        plugs = [
            callers.submit(os_acc.plug, instance, provider, {'accel:device_profile': 'vgpu'})
            for instance in instances
        ]
        eventually(lambda: len(gpus.arqs()) == 6)
        gate.set()
        plugged = {plug.result()[0]['mdev_uuid'] for plug in plugs}
    assert plugged == gpus.gpu.mdevs() and len(plugged) == 6


# -- vGPUs by vendor-specific VFIO -----------------------------------------------------------


@pytest.fixture
def vfio(tmp_path):
    made = Cloud(tmp_path, more=test_vgpus.SETTINGS.format(kind='1150'))
    made.start()
    made.gpu = made.host(make=test_vgpus.GpuHost, model='10de:26b9')
    made.profile('one', VGPU)
    yield made
    made.stop()


def test_a_handle_is_not_free_before_a_call_that_was_given_up_has_ended(vfio, monkeypatch):
    # given a call into the kernel that takes longer than anybody waits for it
    create, gate = nvidia_vfio.create, threading.Event()

    def hang(*arguments):
        gate.wait(PATIENCE)
        create(*arguments)

    monkeypatch.setattr(nvidia_vfio, 'create', hang)
    [guard] = vfio.agent().worker._guards.values()
    monkeypatch.setattr(guard, '_timeout', 0.1)
    vfio.bind(vfio.request('one'))
    eventually(lambda: vfio.arqs()[0]['state'] == 'BindFailed')
    [handle] = owed(vfio)
    eventually(lambda: attempts(vfio, handle.uuid))
    assert owed(vfio) == [handle] and not vfio.gpu.vgpus()
    # when it ends at last
    monkeypatch.setattr(guard, '_timeout', 60)
    gate.set()
    # then what it did is undone before anybody else can have the handle
    eventually(lambda: not owed(vfio))
    assert not vfio.gpu.vgpus()
    vfio.agent().inventory.wake(must_report=True)
    vfio.agent().inventory.sync()
    assert missing(vfio) == []


def test_a_picture_from_before_a_clean_up_does_not_take_the_free_handle_away(vfio, monkeypatch):
    [arq] = test_vgpus.bind(vfio)
    # given a look that has seen the vGPU in use
    inventory = vfio.agent().inventory
    conductor, report, reports = inventory._conductor, inventory._conductor.report, []
    gate = threading.Event()

    def report_late(context, picture):
        reports.append(picture)
        assert gate.wait(PATIENCE)
        return report(context, picture)

    with monkeypatch.context() as patch:
        patch.setattr(conductor, 'report', report_late)
        inventory.wake(must_report=True)
        eventually(lambda: reports)
        # when it is cleaned before the picture arrives
        vfio.unbind(arq)
        eventually(lambda: not owed(vfio) and not vfio.gpu.vgpus())
        gate.set()
        eventually(lambda: inventory._digest == reports[0].digest)
    # then it is free
    assert missing(vfio) == []


def test_a_type_that_somebody_took_away_is_set_again(vfio):
    instance = str(uuid.uuid4())
    [arq] = test_vgpus.bind(vfio, instance=instance)
    vfio.nova.wait_for_events(1)
    before = vfio.gpu.vgpus()
    [address] = before
    vfio.gpu.sysfs.write(f'bus/pci/devices/{address}/{nvidia_vfio.CURRENT}', '0')
    assert vfio.gpu.vgpus() == {}
    vfio.agent().inventory.wake()
    eventually(lambda: vfio.gpu.vgpus() == before)
    eventually(lambda: test_vgpus.bound(vfio, instance))
    assert len(vfio.nova.wait_for_events(2)) == 2
