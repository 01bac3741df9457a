# SPDX-License-Identifier: Apache-2.0
"""Device profiles and accelerator requests."""

from collections.abc import Iterable

from cyborg import errors
from cyborg.objects import arq_states, base, fields

#: states of requests whose bind is in progress
ON_THEIR_WAY = arq_states.UNFINISHED | {arq_states.UNKNOWN}


@base.register
class DeviceProfile(base.Stamped):
    """A named list of groups of requirements, in an order that Nova relies on."""

    # 1.0: first version
    # 1.1: is_enabled, project_ids
    VERSION = '1.1'
    fields = {
        'uuid': fields.UUIDField(),
        'name': fields.StringField(),
        'description': fields.StringField(nullable=True, default=None),
        'groups': fields.ListOfDictOfNullableStringsField(),
        #: whether new requests can be created with it
        'is_enabled': fields.BooleanField(default=True),
        #: the projects that may use it; None: all
        'project_ids': fields.ListOfStringsField(nullable=True, default=None),
    }


@base.register
class Arq(base.Stamped):
    """An accelerator request: one attachable unit for one server."""

    VERSION = '1.0'  # 1.0: first version
    fields = {
        'uuid': fields.UUIDField(),
        #: a stored state, or Unknown
        'state': fields.EnumField(valid_values=(*arq_states.State, arq_states.UNKNOWN)),
        'device_profile_name': fields.StringField(nullable=True),
        'device_profile_group_id': fields.IntegerField(),
        #: a copy, so that a later change of the profile does not touch this request
        'group': fields.DictOfStringsField(),
        'hostname': fields.StringField(nullable=True),
        'device_rp_uuid': fields.UUIDField(nullable=True),
        'instance_uuid': fields.UUIDField(nullable=True),
        'project_id': fields.StringField(nullable=True),
        'attach_handle_type': fields.StringField(nullable=True),
        'attach_handle_uuid': fields.UUIDField(nullable=True),
        'attach_handle_info': fields.DictOfStringsField(),
        #: why it failed
        'reason': fields.StringField(nullable=True),
    }


def are_bound(arqs: Iterable[Arq]) -> bool:
    """Returns whether all requests are bound; False while a bind is in progress. Raises BindFailed
    if one of them will not be bound any more."""
    is_bound = True
    for arq in arqs:
        if arq.state in ON_THEIR_WAY:
            is_bound = False
        elif arq.state != arq_states.State.BOUND:
            raise errors.BindFailed(
                why=arq.given('reason') or f'accelerator request {arq.uuid} is {arq.state}.'
            )
    return is_bound


@base.register
class Binding(base.CyborgObject):
    """The server, host and provider to which a request is bound."""

    VERSION = '1.0'  # 1.0: first version
    fields = {
        'arq_uuid': fields.UUIDField(),
        'hostname': fields.StringField(),
        'device_rp_uuid': fields.UUIDField(),
        'instance_uuid': fields.UUIDField(),
        #: None: the project of the caller
        'project_id': fields.StringField(nullable=True, default=None),
    }


@base.register
class Transition(base.CyborgObject):
    """One step in the history of a request."""

    VERSION = '1.0'  # 1.0: first version
    fields = {
        'at': fields.DateTimeField(),
        'event': fields.StringField(),
        'from_state': fields.StringField(nullable=True),
        'to_state': fields.StringField(),
        'actor': fields.StringField(),
        'request_id': fields.StringField(nullable=True),
        'hostname': fields.StringField(nullable=True),
        'instance_uuid': fields.UUIDField(nullable=True),
        'reason': fields.StringField(nullable=True),
        #: seconds for which it was in the state before this step
        'seconds_in_state': fields.FloatField(nullable=True),
    }
