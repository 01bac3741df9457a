# SPDX-License-Identifier: Apache-2.0
"""What a host must do: the task that a conductor assigns, and the result that an agent returns."""

from enum import StrEnum

from cyborg.objects import base, fields
from cyborg.objects.devices import Cleaning


class TaskKind(StrEnum):
    """In the order in which the tasks of one handle are performed."""

    PROGRAM = 'program'
    PREPARE = 'prepare'
    RELEASE = 'release'
    CLEAN = 'clean'


class TaskState(StrEnum):
    OPEN = 'open'
    DONE = 'done'
    FAILED = 'failed'
    #: a clean-up that failed, kept until an operator decides
    QUARANTINED = 'quarantined'
    #: nobody needs it any more
    CANCELLED = 'cancelled'


@base.register
class Task(base.CyborgObject):
    """Something that a host must do. Performing it twice is harmless."""

    VERSION = '1.0'  # 1.0: first version
    fields = {
        'uuid': fields.UUIDField(),
        'kind': fields.EnumField(valid_values=tuple(TaskKind)),
        #: of the handle or deployable: a task of an earlier generation is out of date
        'generation': fields.IntegerField(),
        'driver_name': fields.StringField(),
        #: the device and the deployable, by their stable names
        'device_key': fields.StringField(),
        'deployable_name': fields.StringField(),
        'deployable_uuid': fields.UUIDField(),
        #: None for a task that concerns the deployable as a whole
        'handle': fields.ObjectField('AttachHandle', nullable=True, default=None),
        #: the request for which, or after which, the task is performed; None: an operator's task
        'arq_uuid': fields.UUIDField(nullable=True, default=None),
        'instance_uuid': fields.UUIDField(nullable=True, default=None),
        #: the project of that request; an image must be visible to it
        'project_id': fields.StringField(nullable=True, default=None),
        #: the request's own copy of its profile group
        'group': fields.DictOfStringsField(default={}),
        #: seconds to wait before the task is performed, after it failed before
        'delay': fields.FloatField(default=0.0),
        #: program: which image, by one of bitstream_id, bitstream_name, function_id, function_name
        'image': fields.DictOfStringsField(default={}),
        #: program: what the image must not contradict: the card's vendor, the names and ids of
        #: its board, the types of the region
        'vendor': fields.StringField(nullable=True, default=None),
        'boards': fields.ListOfStringsField(default=[]),
        'region_types': fields.ListOfStringsField(default=[]),
        #: program: the image that is loaded already; it need not be loaded again
        'loaded_image': fields.StringField(nullable=True, default=None),
        #: clean: no other request holds a part of the deployable
        'is_alone': fields.BooleanField(default=True),
        #: clean: None: as the agent's configuration says
        'cleaning': fields.EnumField(valid_values=tuple(Cleaning), nullable=True, default=None),
        'is_cleaning_required': fields.BooleanField(nullable=True, default=None),
        #: the API request that led to this task
        'request_id': fields.StringField(nullable=True, default=None),
    }


@base.register
class Step(base.CyborgObject):
    """One named step of a task, as it ended."""

    VERSION = '1.0'  # 1.0: first version
    fields = {
        'name': fields.StringField(),
        'seconds': fields.FloatField(),
        #: None: it succeeded
        'error': fields.StringField(nullable=True, default=None),
    }


@base.register
class TaskResult(base.CyborgObject):
    """How a task ended."""

    VERSION = '1.0'  # 1.0: first version
    fields = {
        'task_uuid': fields.UUIDField(),
        'kind': fields.EnumField(valid_values=tuple(TaskKind)),
        'handle_uuid': fields.UUIDField(nullable=True, default=None),
        'generation': fields.IntegerField(),
        #: None: done
        'error': fields.StringField(nullable=True, default=None),
        #: program: the driver was called, so that what was there before may be gone
        'is_touched': fields.BooleanField(default=True),
        #: program: the image that was loaded
        'image_uuid': fields.UUIDField(nullable=True, default=None),
        #: program: what Glance says of that image: its name, its functions
        'image_facts': fields.DictOfStringsField(default={}),
        #: program: what the hardware tells of what is in the deployable now
        'content': fields.DictOfStringsField(default={}),
        #: trying again may help
        'can_retry': fields.BooleanField(default=True),
        #: clean: the steps that were tried, in their order
        'steps': fields.ListOfObjectsField('Step', default=[]),
        'seconds': fields.FloatField(default=0.0),
        #: of the kernel's driver and the firmware
        'versions': fields.DictOfStringsField(default={}),
    }


@base.register
class HandBack(base.Stamped):
    """How a handle was given back after a request, for its tenant and for operators."""

    VERSION = '1.0'  # 1.0: first version
    fields = {
        'uuid': fields.UUIDField(),
        'kind': fields.EnumField(valid_values=tuple(TaskKind)),
        'state': fields.EnumField(valid_values=tuple(TaskState)),
        'hostname': fields.StringField(),
        'device_uuid': fields.UUIDField(),
        'deployable_uuid': fields.UUIDField(),
        'handle_uuid': fields.UUIDField(),
        'arq_uuid': fields.UUIDField(nullable=True),
        'instance_uuid': fields.UUIDField(nullable=True),
        'project_id': fields.StringField(nullable=True),
        'attempts': fields.IntegerField(),
        'error': fields.StringField(nullable=True),
        'steps': fields.ListOfObjectsField('Step', default=[]),
        'seconds': fields.FloatField(nullable=True),
        'versions': fields.DictOfStringsField(default={}),
        'finished_at': fields.DateTimeField(nullable=True),
    }
