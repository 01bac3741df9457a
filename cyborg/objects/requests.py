# SPDX-License-Identifier: Apache-2.0
"""What users may ask for and what they asked for: device profiles and accelerator requests."""

from cyborg.objects import arq_states, base, fields


@base.register
class DeviceProfile(base.Stamped):
    """A named set of requirements; group order is kept, for Nova matches groups by index."""

    # 1.0: first version
    # 1.1: is_enabled, project_ids
    VERSION = '1.1'
    fields = {
        'uuid': fields.UUIDField(),
        'name': fields.StringField(),
        'description': fields.StringField(nullable=True, default=None),
        'groups': fields.ListOfDictOfNullableStringsField(),
        #: can new requests be made with it?
        'is_enabled': fields.BooleanField(default=True),
        #: whom it is for; None: everybody
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


@base.register
class Binding(base.CyborgObject):
    """Where Nova wants a request to go."""

    VERSION = '1.0'  # 1.0: first version
    fields = {
        'arq_uuid': fields.UUIDField(),
        'hostname': fields.StringField(),
        'device_rp_uuid': fields.UUIDField(),
        'instance_uuid': fields.UUIDField(),
        #: None: the project of whoever binds
        'project_id': fields.StringField(nullable=True, default=None),
    }


@base.register
class Transition(base.CyborgObject):
    """One step in the life of a request."""

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
        #: for how long it was in the state that this step ended
        'seconds_in_state': fields.FloatField(nullable=True),
    }
