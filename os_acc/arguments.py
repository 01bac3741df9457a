# SPDX-License-Identifier: Apache-2.0
"""The arguments and results of the library; checks and copies arguments before they are sent.

They are copied so that the library never changes the mappings of its caller.
"""

import re
import uuid
from collections.abc import Mapping, Sequence
from typing import NotRequired, TypedDict

from os_acc import errors

#: Keys of a flavor that ask for an accelerator; Nova's suffix of a group may follow the word.
ASKING_KEY = re.compile(r'(accel|(resources|trait)[A-Za-z0-9_-]{0,64}):.')


class InstanceInfo(TypedDict):
    """The instance; unplug() needs ``uuid`` and ``name`` only."""

    uuid: str
    name: str
    project_id: NotRequired[str]
    image_uuid: NotRequired[str | None]


class Attachment(TypedDict):
    """One accelerator for the instance.

    ``pci_id`` is the address to pass through or, beside ``mdev_uuid``, that of the
    mediated device's parent. A vGPU has its ``asked_type``; without ``mdev_uuid`` it is
    a virtual function that its host driver itself attaches to the guest. With ``attach_target``,
    which is ``host`` or ``none``, the accelerator is reserved and programmed, but not attached
    to the guest. ``arq_uuid`` is the accelerator request in Cyborg's REST API.
    :mod:`os_acc.libvirt` makes XML of it.
    """

    pci_id: str
    mdev_uuid: NotRequired[str]
    asked_type: NotRequired[str]
    attach_target: NotRequired[str]
    arq_uuid: NotRequired[str]


def named_instance(instance_info: Mapping[str, object]) -> dict[str, object]:
    """Returns the arguments of unplug() about the instance.

    >>> named_instance({'uuid': '5A0C2A3E7D6C4AD89D3D0F4D8B0D6C11', 'name': 'vm1', 'x': 1})
    {'uuid': '5a0c2a3e-7d6c-4ad8-9d3d-0f4d8b0d6c11', 'name': 'vm1'}
    """
    info = _mapping('instance_info', instance_info)
    return {
        'uuid': _uuid("instance_info['uuid']", info.get('uuid')),
        'name': _text("instance_info['name']", info.get('name')),
    }


def owned_instance(instance_info: Mapping[str, object]) -> dict[str, object]:
    """Returns the arguments of plug() about the instance. One booted from a volume has no image.

    >>> owned_instance({'uuid': '5a0c2a3e-7d6c-4ad8-9d3d-0f4d8b0d6c11', 'name': 'vm1',
    ...                 'project_id': 'p1', 'image_uuid': ''})['image_uuid'] is None
    True
    """
    image_uuid = _mapping('instance_info', instance_info).get('image_uuid') or None
    return named_instance(instance_info) | {
        'project_id': _text("instance_info['project_id']", instance_info.get('project_id')),
        'image_uuid': image_uuid and _uuid("instance_info['image_uuid']", image_uuid),
    }


def providers(selected_rp: Mapping[str, object]) -> dict[str, object]:
    """Returns {'uuid': provider}, or Nova's {request group: [provider, ...], ...}.

    The groups of a device profile are ``device_profile_0`` and so on, those of a flavor have
    the suffixes of its keys, and its unnumbered group is ``''``.

    >>> providers({'device_profile_0': ('c3b5a1f0-8e3d-4c60-9a53-0c8f4f3b7d21',)})
    {'device_profile_0': ['c3b5a1f0-8e3d-4c60-9a53-0c8f4f3b7d21']}
    """
    selected = _mapping('selected_rp', selected_rp)
    if not selected:
        raise errors.InvalidArgument("selected_rp is empty; give {'uuid': <resource provider>}.")
    if 'uuid' not in selected:
        return {group: _uuids(group, uuids) for group, uuids in selected.items()}
    if len(selected) > 1:
        raise errors.InvalidArgument("selected_rp holds either 'uuid' or request groups, not both.")
    return {'uuid': _uuid("selected_rp['uuid']", selected['uuid'])}


def extra_specs(flavor_extra_specs: Mapping[str, object]) -> dict[str, object]:
    """Returns all extra specs. The agent interprets them.

    >>> extra_specs({'resources1:VGPU': '1', 'trait1:CUSTOM_X': 'required'})
    {'resources1:VGPU': '1', 'trait1:CUSTOM_X': 'required'}
    >>> extra_specs({'hw:cpu_policy': 'dedicated'})
    Traceback (most recent call last):
    ...
    os_acc.errors.InvalidArgument: flavor_extra_specs asks for no accelerator; ...
    """
    specs = dict(_mapping('flavor_extra_specs', flavor_extra_specs))
    for key, value in specs.items():
        if not isinstance(value, str):
            raise errors.InvalidArgument(
                f'flavor_extra_specs[{key!r}] must be a string, not {value!r}.'
            )
    if not any(ASKING_KEY.match(key) for key in specs):
        raise errors.InvalidArgument(
            'flavor_extra_specs asks for no accelerator; '
            "it needs 'accel:device_profile', or 'resources:' and 'trait:' keys."
        )
    return specs


def _mapping(name: str, value: object) -> Mapping[str, object]:
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise errors.InvalidArgument(
            f'{name} must be a dictionary with string keys, not {type(value).__name__}.'
        )
    return value


def _text(name: str, value: object) -> str:
    if not isinstance(value, str) or not value:
        raise errors.InvalidArgument(f'{name} must be a string that is not empty, not {value!r}.')
    return value


def _uuid(name: str, value: object) -> str:
    try:
        return str(uuid.UUID(_text(name, value)))
    except ValueError:
        raise errors.InvalidArgument(f'{name} must be a UUID, not {value!r}.') from None


def _uuids(group: str, value: object) -> list[str]:
    name = f'selected_rp[{group!r}]'
    if isinstance(value, str) or not isinstance(value, Sequence) or not value:
        raise errors.InvalidArgument(f'{name} must be a list of provider UUIDs, not {value!r}.')
    return [_uuid(name, item) for item in value]
