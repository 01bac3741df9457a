# SPDX-License-Identifier: Apache-2.0
"""The capacity of the cloud: units by model, and the tree of a host down to its units."""

from cyborg.objects import base, fields


@base.register
class ModelCapacity(base.CyborgObject):
    """The units of one model and resource class."""

    VERSION = '1.0'  # 1.0: first version
    fields = {
        'type': fields.StringField(),
        'vendor': fields.StringField(),
        'model': fields.StringField(nullable=True),
        'resource_class': fields.StringField(),
        'hosts': fields.IntegerField(),
        'units': fields.IntegerField(),
        'in_use': fields.IntegerField(),
        'free': fields.IntegerField(),
        #: obstacle -> number of units that no request holds and that cannot be used
        'withheld': fields.DictOfIntegersField(),
    }


@base.register
class Unit(base.CyborgObject):
    """An attach handle, with the request that holds it, or the reason why it cannot be used."""

    VERSION = '1.0'  # 1.0: first version
    fields = {
        'uuid': fields.UUIDField(),
        'type': fields.StringField(),
        'info': fields.DictOfStringsField(),
        'is_missing': fields.BooleanField(),
        #: an Obstacle; None: it is free or held
        'withheld': fields.StringField(nullable=True),
        #: the request that holds it
        'arq_uuid': fields.UUIDField(nullable=True),
        'arq_state': fields.StringField(nullable=True),
        'instance_uuid': fields.StringField(nullable=True),
        'project_id': fields.StringField(nullable=True),
    }


@base.register
class DeployableUnits(base.CyborgObject):
    """A deployable and its units."""

    VERSION = '1.0'  # 1.0: first version
    fields = {
        'uuid': fields.UUIDField(),
        'name': fields.StringField(),
        'parent_uuid': fields.UUIDField(nullable=True),
        'rp_uuid': fields.UUIDField(),
        'resource_class': fields.StringField(nullable=True),
        'traits': fields.ListOfStringsField(),
        'units': fields.ListOfObjectsField('Unit'),
    }


@base.register
class DeviceUnits(base.CyborgObject):
    """A device and its deployables."""

    VERSION = '1.0'  # 1.0: first version
    fields = {
        'uuid': fields.UUIDField(),
        'type': fields.StringField(),
        'vendor': fields.StringField(),
        'model': fields.StringField(nullable=True),
        'status': fields.StringField(),
        'is_missing': fields.BooleanField(),
        'fault': fields.StringField(nullable=True),
        'deployables': fields.ListOfObjectsField('DeployableUnits'),
    }


@base.register
class HostUnits(base.CyborgObject):
    """A host and its devices."""

    VERSION = '1.0'  # 1.0: first version
    fields = {
        'hostname': fields.StringField(),
        #: whether its agent has sent a heartbeat lately
        'is_alive': fields.BooleanField(),
        'devices': fields.ListOfObjectsField('DeviceUnits'),
    }
