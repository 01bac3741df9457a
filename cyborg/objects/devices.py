# SPDX-License-Identifier: Apache-2.0
"""Devices, deployables and attach handles, as drivers report them."""

from enum import StrEnum

from cyborg.objects import base, fields


class DeviceStatus(StrEnum):
    ENABLED = 'enabled'
    MAINTAINING = 'maintaining'


class HandleType(StrEnum):
    PCI = 'PCI'
    MDEV = 'MDEV'
    TEST_PCI = 'TEST_PCI'


class Cleaning(StrEnum):
    """How thoroughly a handle is cleaned between two tenants."""

    NONE = 'none'
    RESET = 'reset'
    FULL = 'full'


class Withheld(StrEnum):
    """Why a handle that no request holds cannot be taken."""

    CLEANING = 'cleaning'
    PROGRAMMING = 'programming'
    QUARANTINED = 'quarantined'


@base.register
class Attribute(base.Stamped):
    """A fact about a deployable. Reports add and remove the attributes of drivers."""

    VERSION = '1.0'  # 1.0: first version
    fields = {
        'uuid': fields.UUIDField(),
        'deployable_id': fields.IntegerField(),
        'deployable_uuid': fields.UUIDField(),
        'parent_uuid': fields.UUIDField(nullable=True),
        'key': fields.StringField(),
        'value': fields.StringField(),
        'children': fields.ListOfObjectsField('Attribute', default=[]),
    }


@base.register
class AttachHandle(base.Stamped):
    """What a guest receives: a PCI function, a mediated device."""

    # 1.0: first version
    # 1.1: companions
    # 1.2: cleaning
    VERSION = '1.2'
    fields = {
        'uuid': fields.UUIDField(),
        #: unique in its deployable, and the same in every discovery
        'key': fields.StringField(),
        'type': fields.EnumField(valid_values=tuple(HandleType)),
        #: its address, in the format that Nova reads
        'info': fields.DictOfStringsField(),
        #: whether the agent must prepare it before a guest can use it
        'is_host_prepared': fields.BooleanField(default=False),
        #: the device that exists at this place now, by its uuid if it has one; None if there is
        #: none or it is not known. If no request holds the handle, another program uses it.
        'occupant': fields.StringField(nullable=True, default=None),
        #: PCI addresses of the other functions of its IOMMU group, without bridges
        'companions': fields.ListOfStringsField(default=[]),
        #: how the agent cleans it after each request, unless the profile says otherwise
        'cleaning': fields.EnumField(valid_values=tuple(Cleaning), default=Cleaning.NONE),
    }


@base.register
class ControlPath(base.CyborgObject):
    """The address by which a driver manages a device: usually its physical function."""

    VERSION = '1.0'  # 1.0: first version
    fields = {
        'type': fields.StringField(),
        'info': fields.DictOfStringsField(),
    }


@base.register
class Deployable(base.Stamped):
    """A part of a device that is a resource provider in Placement."""

    # 1.0: first version
    # 1.1: is_programmable, program_image, program_turn, program_error
    # 1.2: attribute_list
    # 1.3: content
    # 1.4: occupants
    # 1.5: program_task_uuid, is_programming, program_progress, quarantine_reason;
    #   program_turn is gone
    VERSION = '1.5'
    fields = {
        'id': fields.IntegerField(),
        'uuid': fields.UUIDField(),
        #: unique in its device; the agent adds the host as a prefix
        'name': fields.StringField(),
        'parent_name': fields.StringField(nullable=True, default=None),
        'parent_id': fields.IntegerField(nullable=True),
        'parent_uuid': fields.UUIDField(nullable=True),
        'root_id': fields.IntegerField(nullable=True),
        'root_uuid': fields.UUIDField(nullable=True),
        'device_id': fields.IntegerField(),
        'device_uuid': fields.UUIDField(),
        'rp_uuid': fields.UUIDField(nullable=True),
        'driver_name': fields.StringField(nullable=True),
        #: the image that was loaded last
        'bitstream_id': fields.StringField(nullable=True, default=None),
        #: facts that the hardware shows about its content, under any names; facts that it does
        #: not show at the moment are left out. If one changes, another image was loaded.
        'content': fields.DictOfStringsField(default={}),
        #: whether its driver can load images into it
        'is_programmable': fields.BooleanField(default=False),
        #: the last task that loads, or loaded, an image into it; None: there was none
        'program_task_uuid': fields.UUIDField(nullable=True, default=None),
        #: whether that task is open
        'is_programming': fields.BooleanField(default=False),
        #: the image of that task, as soon as it is known
        'program_image': fields.StringField(nullable=True, default=None),
        'program_progress': fields.StringField(nullable=True, default=None),
        #: why that task failed
        'program_error': fields.StringField(nullable=True, default=None),
        #: why a part of it could not be cleaned and is quarantined
        'quarantine_reason': fields.StringField(nullable=True, default=None),
        'num_accelerators': fields.IntegerField(),
        #: number of its handles that cannot be used because others use the resources of the card
        'reserved': fields.IntegerField(default=0),
        #: the devices that exist on it, by uuid, if handles have no places of their own. A device
        #: that is not that of a handle belongs to another program.
        'occupants': fields.ListOfStringsField(default=[]),
        #: None if only its children are offered, such as the regions of an FPGA
        'resource_class': fields.StringField(nullable=True, default=None),
        'traits': fields.ListOfStringsField(default=[]),
        'attributes': fields.ListOfObjectsField('Attribute', default=[]),
        #: the attributes as the API shows them: a JSON list of objects with one key each
        'attribute_list': fields.StringField(nullable=True, default=None),
        'attach_handles': fields.ListOfObjectsField('AttachHandle', default=[]),
    }


@base.register
class Device(base.Stamped):
    """A card, or another unit that an operator can remove from a host."""

    # 1.0: first version
    # 1.1: doubt
    # 1.2: doubt is now called fault_if_changed
    VERSION = '1.2'
    renamed = {'fault_if_changed': ('doubt', '1.2')}
    fields = {
        'uuid': fields.UUIDField(),
        'hostname': fields.StringField(),
        #: unique on its host, and the same after a reboot: a serial number, else an address
        'key': fields.StringField(),
        'type': fields.StringField(),
        'vendor': fields.StringField(),
        'model': fields.StringField(nullable=True, default=None),
        'driver_name': fields.StringField(),
        'std_board_info': fields.DictOfStringsField(default={}),
        'vendor_board_info': fields.DictOfStringsField(default={}),
        'status': fields.EnumField(valid_values=tuple(DeviceStatus)),
        #: it is gone from the bus, and kept because a request holds a part of it
        'is_missing': fields.BooleanField(default=False),
        #: why it must not be given out now, as its driver reports it
        'fault': fields.StringField(nullable=True, default=None),
        #: the fault that it gets if it offered other handles in its last report: the operator has
        #: not confirmed that it is meant to offer these
        'fault_if_changed': fields.StringField(nullable=True, default=None),
        'control_paths': fields.ListOfObjectsField('ControlPath', default=[]),
        'deployables': fields.ListOfObjectsField('Deployable', default=[]),
    }
