# SPDX-License-Identifier: Apache-2.0
"""os_acc.plug() and os_acc.unplug(): what the agent gives, or why it does not."""

import shutil
import types
import uuid
from concurrent import futures

import oslo_messaging as messaging
import pytest
from oslo_config import cfg

import os_acc
from os_acc import client

INSTANCE = {
    'uuid': '5a0c2a3e-7d6c-4ad8-9d3d-0f4d8b0d6c11',
    'name': 'instance-00000001',
    'project_id': '7b1f0c2f9b0c4b6f8f5a9e2d3c4b5a69',
    'image_uuid': '2f1c9f7e-51a8-4d55-8f5e-6a7b1c2d3e4f',
}
PROVIDER = {'uuid': 'c3b5a1f0-8e3d-4c60-9a53-0c8f4f3b7d21'}
SPECS = {'accel:device_profile': 'one-vgpu', 'hw:cpu_policy': 'dedicated'}

CALLS = {
    'plug': (lambda: os_acc.plug(INSTANCE, PROVIDER, SPECS), os_acc.PlugFailed),
    'unplug': (lambda: os_acc.unplug(INSTANCE), os_acc.UnplugFailed),
}
both_calls = pytest.mark.parametrize(('call', 'failed'), CALLS.values(), ids=CALLS)


class NoFreeHandle(Exception):
    """An error of the agent that this side cannot import."""


@both_calls
def test_before_initialize_nothing_works(call, failed):
    with pytest.raises(os_acc.NotInitialized):
        call()


@both_calls
def test_an_error_of_the_agent_arrives_without_its_traceback(ready, call, failed):
    ready.agent.failure = NoFreeHandle('Deployable d1 has no free attach handle.\nSecond line.')
    with pytest.raises(failed) as caught:
        call()
    assert caught.value.reason == 'Deployable d1 has no free attach handle.'
    assert caught.value.kind == 'NoFreeHandle'
    assert 'Traceback' not in str(caught.value)
    assert caught.value.__cause__ is None


class OutcomeUnknown(Exception):
    """Cyborg's, of an agent whose conductor did not answer."""


UNFORESEEN = {
    'a bug': PermissionError(13, 'sysfs is read-only'),
    'a silent conductor': OutcomeUnknown('No conductor answered plug_instance in time'),
    'a silent conductor of an older agent': messaging.MessagingTimeout('No conductor answered'),
}


@pytest.mark.parametrize('error', UNFORESEEN.values(), ids=UNFORESEEN)
@both_calls
def test_an_error_that_leaves_the_outcome_open_is_no_failure(host, call, failed, error):
    host.set('call_timeout', 1)
    host.start_agent()
    host.initialize()
    host.agent.failure = error
    with pytest.raises(os_acc.CyborgAgentUnavailable) as caught:
        call()
    assert str(error) in caught.value.reason
    assert type(caught.value) is os_acc.CyborgAgentUnavailable
    assert caught.value.was_asked


def test_plug_asks_again_when_the_outcome_is_open(ready):
    ready.agent.failures = list(UNFORESEEN.values())
    assert os_acc.plug(INSTANCE, PROVIDER, SPECS) == ready.agent.given[INSTANCE['uuid']]
    assert ready.agent.repeats == [False, True, True, True]


def test_plug_asks_again_when_no_answer_comes(host, monkeypatch):
    # given an agent that has taken the question and is restarted before it answers
    # oslo.messaging before 18.2 takes half a second for each answer
    monkeypatch.setattr(client, 'ASK_TIMEOUT', 2.0)
    host.start_agent()
    host.initialize()
    host.stop_agent()
    with futures.ThreadPoolExecutor(max_workers=1) as executor:
        plugging = executor.submit(os_acc.plug, INSTANCE, PROVIDER, SPECS)
        with pytest.raises(futures.TimeoutError):
            plugging.result(timeout=1)
        # when it is back
        host.start_agent()
        # then the plug goes on
        assert plugging.result(timeout=60) == host.agent.given[INSTANCE['uuid']]


class AlreadyPlugged(Exception):
    """Cyborg's, of an instance that holds something else."""


def test_what_another_plug_asked_for_is_an_error_of_its_own(ready):
    ready.agent.failure = AlreadyPlugged('Instance 5a0c holds accelerators')
    with pytest.raises(os_acc.AlreadyPlugged, match='holds accelerators') as caught:
        os_acc.plug(INSTANCE, PROVIDER, SPECS)
    assert isinstance(caught.value, os_acc.PlugFailed)


def test_an_error_without_words_still_has_a_kind(ready):
    ready.agent.failure = NoFreeHandle()
    with pytest.raises(os_acc.PlugFailed, match='no reason given') as caught:
        os_acc.plug(INSTANCE, PROVIDER, SPECS)
    assert caught.value.kind == 'NoFreeHandle'


def test_an_error_that_a_shared_transport_rebuilds_is_the_agents_failure(ready):
    transport = messaging.get_rpc_transport(
        cfg.CONF, url='kombu+memory:////', allowed_remote_exmods=['shutil']
    )
    os_acc.initialize(ready.conf, host=ready.name, transport=transport)
    ready.agent.failure = shutil.SameFileError('the same bitstream')
    with pytest.raises(os_acc.PlugFailed) as caught:
        os_acc.plug(INSTANCE, PROVIDER, SPECS)
    assert (caught.value.reason, caught.value.kind) == ('the same bitstream', 'SameFileError')
    transport.cleanup()


def test_an_agent_that_died_is_unavailable(host):
    host.set('call_timeout', 1)
    host.start_agent()
    host.initialize()
    host.stop_agent()
    for call, _ in CALLS.values():
        with pytest.raises(os_acc.CyborgAgentUnavailable, match='It did not answer (un)?plug'):
            call()


def test_every_error_is_one_of_the_library():
    for error in (
        os_acc.NotInitialized,
        os_acc.CyborgAgentUnavailable,
        os_acc.PlugFailed,
        os_acc.UnplugFailed,
        os_acc.InvalidArgument,
    ):
        assert issubclass(error, os_acc.OsAccError)


def test_plug_answers_what_the_agent_gave(ready):
    attachments = os_acc.plug(INSTANCE, PROVIDER, SPECS)
    assert attachments == ready.agent.given[INSTANCE['uuid']]
    assert [set(attachment) for attachment in attachments] == [{'pci_id', 'arq_uuid'}]


def test_plug_asks_again_until_the_agent_is_done(ready):
    ready.agent.pending = 3
    assert os_acc.plug(INSTANCE, PROVIDER, SPECS) == ready.agent.given[INSTANCE['uuid']]
    assert ready.agent.heard == [(INSTANCE, PROVIDER, SPECS)] * 4


def test_an_agent_that_is_never_done_is_unavailable(host):
    host.set('call_timeout', 1)
    host.start_agent()
    host.initialize()
    host.agent.pending = 10**6
    # oslo.messaging before 18.2 is too slow for the last question
    told = 'did not prepare the accelerators|did not answer plug in time'
    with pytest.raises(os_acc.CyborgAgentUnavailable, match=told):
        os_acc.plug(INSTANCE, PROVIDER, SPECS)


class FirstAgent:
    """One that answers a plug only when it is done."""

    target = messaging.Target(namespace='os_acc', version='1.0')

    def is_ready(self, ctxt):
        return True

    def plug(self, ctxt, instance_info, selected_rp, flavor_extra_specs):
        return [{'pci_id': '0000:3b:00.4', 'arq_uuid': instance_info['uuid']}]


class SecondAgent(FirstAgent):
    """One that is asked again, and takes no note of it."""

    target = messaging.Target(namespace='os_acc', version='1.1')

    def plug(self, ctxt, instance_info, selected_rp, flavor_extra_specs, wait=True):
        assert not wait
        return super().plug(ctxt, instance_info, selected_rp, flavor_extra_specs)


@pytest.mark.parametrize('older_agent', [FirstAgent, SecondAgent])
def test_an_older_agent_is_asked_as_it_knows_it(host, older_agent):
    host.start_agent(older_agent())
    host.initialize()
    assert os_acc.plug(INSTANCE, PROVIDER, SPECS) == [
        {'pci_id': '0000:3b:00.4', 'arq_uuid': INSTANCE['uuid']}
    ]


def test_a_mediated_device_comes_with_its_uuid(ready):
    vgpu = {'pci_id': '0000:84:00.0', 'mdev_uuid': str(uuid.uuid4()), 'arq_uuid': 'a'}
    ready.agent.given[INSTANCE['uuid']] = [vgpu, vgpu]
    assert os_acc.plug(INSTANCE, PROVIDER, SPECS) == [vgpu, vgpu]


def test_plug_sends_what_it_promised_and_no_more(ready):
    os_acc.plug(INSTANCE | {'flavor': object()}, PROVIDER, SPECS)
    assert ready.agent.heard == [(INSTANCE, PROVIDER, SPECS)]


def test_plug_takes_the_providers_as_nova_maps_them(ready):
    first, second = str(uuid.uuid4()), str(uuid.uuid4())
    os_acc.plug(INSTANCE, {'device_profile_0': (first,), 'device_profile_1': [second]}, SPECS)
    [(_, selected, _)] = ready.agent.heard
    assert selected == {'device_profile_0': [first], 'device_profile_1': [second]}


@pytest.mark.parametrize('image', [{}, {'image_uuid': None}, {'image_uuid': ''}])
def test_a_server_booted_from_a_volume_has_no_image(ready, image):
    without = {key: INSTANCE[key] for key in ('uuid', 'name', 'project_id')}
    os_acc.plug(without | image, PROVIDER, SPECS)
    [(instance, _, _)] = ready.agent.heard
    assert instance == without | {'image_uuid': None}


def test_unplug_counts_what_was_released_and_is_harmless_again(ready):
    os_acc.plug(INSTANCE, PROVIDER, SPECS)
    assert os_acc.unplug(INSTANCE) == 1
    assert os_acc.unplug(INSTANCE) == 0


def test_unplug_needs_no_more_than_uuid_and_name(ready):
    named = {'uuid': INSTANCE['uuid'], 'name': INSTANCE['name']}
    os_acc.unplug(named)
    os_acc.unplug(INSTANCE)
    assert ready.agent.heard == [(named,), (named,)]


def test_arguments_may_be_read_only(ready):
    frozen = types.MappingProxyType
    groups = frozen({'device_profile_0': (PROVIDER['uuid'],)})
    assert os_acc.plug(frozen(INSTANCE), groups, frozen(SPECS))
    assert os_acc.unplug(frozen(INSTANCE)) == 1


def test_threads_get_each_their_own_answer(ready):
    instances = [INSTANCE | {'uuid': str(uuid.uuid4())} for _ in range(24)]
    with futures.ThreadPoolExecutor(max_workers=8) as executor:
        plugs = [executor.submit(os_acc.plug, instance, PROVIDER, SPECS) for instance in instances]
        answers = {
            instance['uuid']: plug.result() for instance, plug in zip(instances, plugs, strict=True)
        }
    assert answers == ready.agent.given
    assert len({attachment['pci_id'] for [attachment] in answers.values()}) == 24
