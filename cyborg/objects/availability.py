# SPDX-License-Identifier: Apache-2.0
"""How often a device profile fits on hosts, and the obstacles where it does not fit."""

from enum import StrEnum

from cyborg.objects import base, fields


class Obstacle(StrEnum):
    """Why a unit cannot be used. If several obstacles apply to a unit, the first one is counted."""

    #: the host has no unit of the requested class
    CLASS_MISSING = 'class_missing'
    #: a required trait is missing, or a forbidden one is present
    TRAIT_MISSING = 'trait_missing'
    #: a request holds it
    IN_USE = 'in_use'
    #: the compute service of the host is disabled
    COMPUTE_DISABLED = 'compute_service_disabled'
    #: the agent of the host sends no heartbeats
    AGENT_SILENT = 'agent_silent'
    #: Nova or another service has a provider for the same device in Placement
    CONFLICT = 'conflict_with_nova'
    #: an administrator has disabled the device
    DISABLED = 'disabled'
    #: the device has a fault, or is missing
    AT_FAULT = 'at_fault'
    #: it could not be cleaned, and waits for an operator
    QUARANTINED = 'quarantined'
    BEING_PROGRAMMED = 'being_programmed'
    BEING_CLEANED = 'being_cleaned'
    #: another program uses it, or something that it needs
    USED_BY_OTHERS = 'used_by_others'
    #: it is free, but its device has fewer free units than are asked for together
    TOO_FEW = 'too_few'
    #: it is free, but Placement has no room for the amount: another consumer has allocations, or
    #: the inventory does not allow the amount
    NO_ROOM = 'no_room_in_placement'
    #: it is free, but Placement does not have it
    NOT_IN_PLACEMENT = 'not_in_placement'


@base.register
class GroupAvailability(base.CyborgObject):
    """How often one group of a profile fits, on one host or on all of them."""

    VERSION = '1.0'  # 1.0: first version
    fields = {
        #: the index of the group in its profile
        'group': fields.IntegerField(),
        'fits': fields.IntegerField(),
        #: of the classes that the group asks for
        'units': fields.IntegerField(),
        'free': fields.IntegerField(),
        #: obstacle -> number of units
        'obstacles': fields.DictOfIntegersField(),
        #: None: all hosts
        'sentence': fields.StringField(nullable=True, default=None),
    }


@base.register
class HostAvailability(base.CyborgObject):
    """How often a profile fits on each of some hosts that are alike."""

    VERSION = '1.0'  # 1.0: first version
    fields = {
        'hostnames': fields.ListOfStringsField(),
        'fits': fields.IntegerField(),
        #: there may be room for fewer
        'is_at_most': fields.BooleanField(),
        'groups': fields.ListOfObjectsField('GroupAvailability'),
    }


@base.register
class Availability(base.CyborgObject):
    """How often a profile fits in the cloud."""

    VERSION = '1.0'  # 1.0: first version
    fields = {
        'profile_uuid': fields.UUIDField(),
        'profile_name': fields.StringField(),
        #: requests can be made with the profile
        'is_enabled': fields.BooleanField(),
        'fits': fields.IntegerField(),
        'is_at_most': fields.BooleanField(),
        'hosts_considered': fields.IntegerField(),
        'hosts_fitting': fields.IntegerField(),
        #: obstacle -> number of hosts on which the profile does not fit because of it
        'obstacles': fields.DictOfIntegersField(),
        'groups': fields.ListOfObjectsField('GroupAvailability'),
        #: empty unless hosts are asked for
        'hosts': fields.ListOfObjectsField('HostAvailability', default=[]),
    }
