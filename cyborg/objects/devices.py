# SPDX-License-Identifier: Apache-2.0
"""The world as drivers see it: devices, what can be deployed on them, what a guest receives."""

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
    """A fact about a deployable; those of a driver come and go with its reports."""

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
        #: what tells it from its siblings and survives a new look at the host
        'key': fields.StringField(),
        'type': fields.EnumField(valid_values=tuple(HandleType)),
        #: where it sits; Nova reads it as is
        'info': fields.DictOfStringsField(),
        #: the agent must do something before a guest can have it
        'is_host_prepared': fields.BooleanField(default=False),
        #: what sits there now, by its uuid if it has one; None if nothing does or it is not
        #: known. Where no request holds the handle, it is somebody else's.
        'occupant': fields.StringField(nullable=True, default=None),
        #: PCI addresses of the other functions of its IOMMU group, bridges apart
        'companions': fields.ListOfStringsField(default=[]),
        #: how the agent cleans it after each request, unless the profile says otherwise
        'cleaning': fields.EnumField(valid_values=tuple(Cleaning), default=Cleaning.NONE),
    }


@base.register
class ControlPath(base.CyborgObject):
    """The way by which a driver manages a device: usually its physical function."""

    VERSION = '1.0'  # 1.0: first version
    fields = {
        'type': fields.StringField(),
        'info': fields.DictOfStringsField(),
    }


@base.register
class Deployable(base.Stamped):
    """A part of a device that is scheduled as one: Placement sees it as a resource provider."""

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
        #: unique in its device; the agent puts the host before it
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
        #: what the hardware tells of what is in it now, by any names; what it does not tell at
        #: the moment is left out. If one of these changes, another image was loaded.
        'content': fields.DictOfStringsField(default={}),
        #: its driver can load images into it
        'is_programmable': fields.BooleanField(default=False),
        #: the last task that loads, or loaded, an image into it; None: there was none
        'program_task_uuid': fields.UUIDField(nullable=True, default=None),
        #: that task is not finished
        'is_programming': fields.BooleanField(default=False),
        #: the image of that task, as soon as it is known
        'program_image': fields.StringField(nullable=True, default=None),
        'program_progress': fields.StringField(nullable=True, default=None),
        #: why that task failed
        'program_error': fields.StringField(nullable=True, default=None),
        #: why a part of it could not be cleaned, and is given to nobody
        'quarantine_reason': fields.StringField(nullable=True, default=None),
        'num_accelerators': fields.IntegerField(),
        #: how many of its handles cannot be had now, because others use what they need
        'reserved': fields.IntegerField(default=0),
        #: what sits on it, by uuid, where no place belongs to any handle in particular: what is
        #: none of its handles is somebody else's
        'occupants': fields.ListOfStringsField(default=[]),
        #: None for a part that only holds others, as an FPGA holds its regions
        'resource_class': fields.StringField(nullable=True, default=None),
        'traits': fields.ListOfStringsField(default=[]),
        'attributes': fields.ListOfObjectsField('Attribute', default=[]),
        #: the same where they are only shown: a JSON list of a key and a value each
        'attribute_list': fields.StringField(nullable=True, default=None),
        'attach_handles': fields.ListOfObjectsField('AttachHandle', default=[]),
    }


@base.register
class Device(base.Stamped):
    """A card, or whatever an operator would pull out of a host."""

    # 1.0: first version
    # 1.1: doubt
    VERSION = '1.1'
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
        #: gone from the bus, kept because somebody still holds a part of it
        'is_missing': fields.BooleanField(default=False),
        #: why it must not be given out now, in the driver's words
        'fault': fields.StringField(nullable=True, default=None),
        #: what is its fault if it had other parts when it was last seen: nobody said that what
        #: it offers now is meant
        'doubt': fields.StringField(nullable=True, default=None),
        'control_paths': fields.ListOfObjectsField('ControlPath', default=[]),
        'deployables': fields.ListOfObjectsField('Deployable', default=[]),
    }
