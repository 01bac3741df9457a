# SPDX-License-Identifier: Apache-2.0
"""Reports of agents, and the plans that conductors return."""

from enum import StrEnum

from cyborg.objects import base, fields


class DriverStatus(StrEnum):
    OK = 'ok'
    FAILED = 'failed'


@base.register
class Driver(base.CyborgObject):
    """The outcome of a driver's last discovery."""

    VERSION = '1.0'  # 1.0: first version
    fields = {
        'name': fields.StringField(),
        'status': fields.EnumField(valid_values=tuple(DriverStatus)),
        'error': fields.StringField(nullable=True, default=None),
    }


@base.register
class Report(base.CyborgObject):
    """The complete state of a host at one moment."""

    # 1.0: first version
    # 1.1: after
    # 1.2: adopted
    # 1.3: in_flux, lost
    # 1.4: rpc_version, release
    # 1.5: returned
    # 1.6: boot_id
    VERSION = '1.6'
    added = {
        'after': '1.1',
        'adopted': '1.2',
        'in_flux': '1.3',
        'lost': '1.3',
        'rpc_version': '1.4',
        'release': '1.4',
        'returned': '1.5',
        'boot_id': '1.6',
    }
    fields = {
        'hostname': fields.StringField(),
        #: grows with every report, also over restarts
        'sequence': fields.IntegerField(),
        #: the sequence of the last accepted report that the agent knows; if the conductor has
        #: another one, it refuses the report. 0: the agent has just started and knows none.
        #: None: an agent of version 1.0, whose sequences come from a clock
        'after': fields.IntegerField(nullable=True, default=None),
        'digest': fields.StringField(),
        #: the first report of this agent process: devices that it had prepared may be lost
        'is_first': fields.BooleanField(default=False),
        #: all drivers have returned, and their devices are published in Placement
        'is_ready': fields.BooleanField(default=False),
        #: devices of drivers that failed are not in the report, and keep their state
        'drivers': fields.ListOfObjectsField('Driver'),
        'devices': fields.ListOfObjectsField('Device'),
        #: keys of devices that were removed since the last report, and are back
        'returned': fields.ListOfStringsField(default=[]),
        #: all mediated devices that exist, also those of other programs
        'mdevs': fields.ListOfStringsField(nullable=True, default=None),
        #: the prepared handles at the start of the discovery: handle -> generation
        'prepared': fields.DictOfIntegersField(default={}),
        #: handles that tasks changed during the discovery: their state here may be outdated
        'in_flux': fields.ListOfStringsField(default=[]),
        #: prepared handles whose device is lost: handle -> generation
        'lost': fields.DictOfIntegersField(default={}),
        #: devices that other services claim in Placement: provider name -> owner
        'conflicts': fields.DictOfStringsField(default={}),
        #: providers that Placement has under another uuid than the one that derives from their
        #: name: provider name -> uuid. The rows have those that were reported earlier.
        #: None: an agent of an earlier version, whose deployables have these uuids
        'adopted': fields.DictOfStringsField(nullable=True, default=None),
        #: the newest RPC version that the agent reads; None: it is 2.0
        'rpc_version': fields.StringField(nullable=True, default=None),
        #: the release of Cyborg that the agent runs
        'release': fields.StringField(nullable=True, default=None),
        #: changes when the host is started; None: not known
        'boot_id': fields.StringField(nullable=True, default=None),
    }


@base.register
class Provider(base.CyborgObject):
    """A resource provider as Placement should have it."""

    VERSION = '1.0'  # 1.0: first version
    fields = {
        'uuid': fields.UUIDField(),
        'name': fields.StringField(),
        #: None: the compute node itself
        'parent_uuid': fields.UUIDField(nullable=True, default=None),
        #: None: only its children have an inventory
        'resource_class': fields.StringField(nullable=True, default=None),
        'total': fields.IntegerField(default=0),
        'reserved': fields.IntegerField(default=0),
        'traits': fields.ListOfStringsField(default=[]),
    }


@base.register
class Plan(base.CyborgObject):
    """The conductor's answer to a Report."""

    # 1.0: first version
    # 1.1: programmings
    # 2.0: tasks instead of pending and programmings
    # 2.1: imported_providers
    VERSION = '2.1'
    added = {'imported_providers': '2.1'}
    fields = {
        'providers': fields.ListOfObjectsField('Provider'),
        #: all open tasks of the host, also those whose message was lost
        'tasks': fields.ListOfObjectsField('Task'),
        #: uuids of the providers of this host that another service created, and that were taken
        #: over with its database; they may lack the trait of the owner
        'imported_providers': fields.ListOfStringsField(default=[]),
    }


@base.register
class Agent(base.Stamped):
    """A host's agent, as of its last heartbeat or report."""

    VERSION = '1.0'  # 1.0: first version
    fields = {
        'uuid': fields.UUIDField(),
        'hostname': fields.StringField(),
        'last_heartbeat': fields.DateTimeField(),
        'is_alive': fields.BooleanField(),
        'is_ready': fields.BooleanField(),
        'drivers': fields.ListOfObjectsField('Driver'),
        'conflicts': fields.DictOfStringsField(),
    }
