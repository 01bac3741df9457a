# SPDX-License-Identifier: Apache-2.0
"""What an agent tells the conductor about its host, and what it is told to do."""

from enum import StrEnum

from cyborg.objects import base, fields


class DriverStatus(StrEnum):
    OK = 'ok'
    FAILED = 'failed'


@base.register
class Driver(base.CyborgObject):
    """How a driver fared when it was last asked."""

    VERSION = '1.0'  # 1.0: first version
    fields = {
        'name': fields.StringField(),
        'status': fields.EnumField(valid_values=tuple(DriverStatus)),
        'error': fields.StringField(nullable=True, default=None),
    }


@base.register
class Report(base.CyborgObject):
    """The whole picture of a host at one moment."""

    # 1.0: first version
    # 1.1: after
    # 1.2: adopted
    # 1.3: in_flux, lost
    VERSION = '1.3'
    fields = {
        'hostname': fields.StringField(),
        #: grows with every report, over restarts too
        'sequence': fields.IntegerField(),
        #: the sequence of the last report that was accepted, as far as the agent knows: if it is
        #: another one, this report is late. 0: the agent has just started, and knows of none.
        #: None: an agent of version 1.0, whose sequences come from a clock
        'after': fields.IntegerField(nullable=True, default=None),
        'digest': fields.StringField(),
        #: the first of this agent's life: what it had prepared may be gone
        'is_first': fields.BooleanField(default=False),
        #: all drivers were asked, and Placement has what they found
        'is_ready': fields.BooleanField(default=False),
        #: those that failed have said nothing, so their devices stay as they are
        'drivers': fields.ListOfObjectsField('Driver'),
        'devices': fields.ListOfObjectsField('Device'),
        #: mediated devices that exist, whoever made them
        'mdevs': fields.ListOfStringsField(nullable=True, default=None),
        #: what the agent had prepared when it looked: handle -> generation
        'prepared': fields.DictOfIntegersField(default={}),
        #: handles that the agent worked on while it looked: what was seen of them may be over
        'in_flux': fields.ListOfStringsField(default=[]),
        #: what it had prepared and is no longer there: handle -> generation
        'lost': fields.DictOfIntegersField(default={}),
        #: devices that somebody else claims in Placement: provider name -> owner
        'conflicts': fields.DictOfStringsField(default={}),
        #: providers that Placement has under another uuid than the one that derives from their
        #: name: provider name -> uuid. Those that an earlier agent told are in the rows.
        #: None: an agent of an earlier version, whose deployables carry these uuids
        'adopted': fields.DictOfStringsField(nullable=True, default=None),
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
        #: None: it only holds others
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
    VERSION = '2.0'
    fields = {
        'providers': fields.ListOfObjectsField('Provider'),
        #: all that the host has to do, whatever got lost on the way
        'tasks': fields.ListOfObjectsField('Task'),
    }


@base.register
class Agent(base.Stamped):
    """A host's agent as the conductor last heard of it."""

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
