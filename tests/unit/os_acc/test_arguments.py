# SPDX-License-Identifier: Apache-2.0
"""A bad argument is refused in words, before anything is sent."""

import copy

import pytest

import os_acc

INSTANCE = {
    'uuid': '5a0c2a3e-7d6c-4ad8-9d3d-0f4d8b0d6c11',
    'name': 'vm1',
    'project_id': '7b1f0c2f9b0c4b6f8f5a9e2d3c4b5a69',
    'image_uuid': '2f1c9f7e-51a8-4d55-8f5e-6a7b1c2d3e4f',
}
RP = 'c3b5a1f0-8e3d-4c60-9a53-0c8f4f3b7d21'
PROVIDER = {'uuid': RP}
SPECS = {'accel:device_profile': 'one-vgpu'}


def without(key):
    return {name: value for name, value in INSTANCE.items() if name != key}


@pytest.mark.parametrize(
    ('instance', 'words'),
    [
        (None, 'instance_info must be a dictionary'),
        ([('uuid', 'x')], 'instance_info must be a dictionary'),
        ({1: 'x'}, 'instance_info must be a dictionary'),
        (without('uuid'), r"instance_info\['uuid'\] must be a UUID, not None"),
        (INSTANCE | {'uuid': 'vm1'}, r"instance_info\['uuid'\] must be a UUID, not 'vm1'"),
        (INSTANCE | {'uuid': 7}, r"instance_info\['uuid'\] must be a UUID, not 7"),
        (without('name'), r"instance_info\['name'\] must be a string"),
        (INSTANCE | {'name': ''}, r"instance_info\['name'\] must be a string"),
    ],
)
def test_both_calls_need_to_know_the_instance(ready, instance, words):
    with pytest.raises(os_acc.InvalidArgument, match=words):
        os_acc.plug(instance, PROVIDER, SPECS)
    with pytest.raises(os_acc.InvalidArgument, match=words):
        os_acc.unplug(instance)
    assert ready.agent.heard == []


@pytest.mark.parametrize(
    ('instance', 'words'),
    [
        (without('project_id'), r"instance_info\['project_id'\] must be a string"),
        (INSTANCE | {'image_uuid': 'cirros'}, r"instance_info\['image_uuid'\] must be a UUID"),
    ],
)
def test_plug_needs_to_know_owner_and_image_too(ready, instance, words):
    with pytest.raises(os_acc.InvalidArgument, match=words):
        os_acc.plug(instance, PROVIDER, SPECS)
    assert ready.agent.heard == []


@pytest.mark.parametrize(
    ('selected', 'words'),
    [
        (RP, 'selected_rp must be a dictionary'),
        ({}, 'selected_rp is empty'),
        ({'uuid': None}, r"selected_rp\['uuid'\] must be a UUID"),
        ({'uuid': [RP]}, r"selected_rp\['uuid'\] must be a UUID"),
        ({'uuid': RP, 'device_profile_0': [RP]}, 'not both'),
        ({'device_profile_0': RP}, r"selected_rp\['device_profile_0'\] must be a list"),
        ({'device_profile_0': []}, r"selected_rp\['device_profile_0'\] must be a list"),
        ({'device_profile_0': None}, r"selected_rp\['device_profile_0'\] must be a list"),
        ({'device_profile_0': [RP, 'x']}, r"selected_rp\['device_profile_0'\] must be a UUID"),
    ],
)
def test_the_provider_has_one_of_two_shapes(ready, selected, words):
    with pytest.raises(os_acc.InvalidArgument, match=words):
        os_acc.plug(INSTANCE, selected, SPECS)
    assert ready.agent.heard == []


@pytest.mark.parametrize(
    ('specs', 'words'),
    [
        (None, 'flavor_extra_specs must be a dictionary'),
        ({'accel:device_profile': 1}, 'must be a string, not 1'),
        ({}, 'asks for no accelerator'),
        ({'hw:cpu_policy': 'dedicated'}, 'asks for no accelerator'),
        ({'accel:': 'x'}, 'asks for no accelerator'),
    ],
)
def test_the_flavor_asks_for_an_accelerator(ready, specs, words):
    with pytest.raises(os_acc.InvalidArgument, match=words):
        os_acc.plug(INSTANCE, PROVIDER, specs)
    assert ready.agent.heard == []


@pytest.mark.parametrize(
    'specs',
    [
        {'accel:device_profile': 'p'},
        {'resources:FPGA': '1', 'trait:CUSTOM_FPGA_INTEL': 'required', 'accel:bitstream_id': RP},
        {'resources1:PGPU': '1', 'hw:watchdog_action': ''},
    ],
)
def test_every_extra_spec_reaches_the_agent(ready, specs):
    os_acc.plug(INSTANCE, PROVIDER, specs)
    [(_, _, heard)] = ready.agent.heard
    assert heard == specs


def test_a_bad_argument_is_a_value_error_even_before_initialize():
    with pytest.raises(ValueError, match='selected_rp is empty'):
        os_acc.plug(INSTANCE, {}, SPECS)


def test_arguments_stay_as_they_were(ready):
    arguments = (INSTANCE, {'device_profile_0': [RP]}, SPECS)
    before = copy.deepcopy(arguments)
    os_acc.plug(*arguments)
    assert arguments == before
