# SPDX-License-Identifier: Apache-2.0
"""Tasks of hosts, which conductors assign, and their results, which agents return."""

from enum import StrEnum

from cyborg.objects import base, fields
from cyborg.objects.devices import Cleaning


class TaskKind(StrEnum):
    """The kinds of tasks, in the order in which those of one handle are performed."""

    PROGRAM = 'program'
    PREPARE = 'prepare'
    RELEASE = 'release'
    CLEAN = 'clean'


#: the step of a clean-up that removes the function of a region
BLANK = 'blank'


class TaskState(StrEnum):
    OPEN = 'open'
    DONE = 'done'
    FAILED = 'failed'
    #: a clean-up that failed, kept until an operator decides
    QUARANTINED = 'quarantined'
    #: it is no longer needed
    CANCELLED = 'cancelled'


class Decision(StrEnum):
    """The decision of an operator about a handle that could not be cleaned."""

    CLEAN = 'clean'
    RELEASE = 'release'


@base.register
class Task(base.CyborgObject):
    """A task of a host. Performing it twice is harmless."""

    VERSION = '1.0'  # 1.0: first version
    fields = {
        'uuid': fields.UUIDField(),
        'kind': fields.EnumField(valid_values=tuple(TaskKind)),
        #: generation of the handle: a task of an earlier generation is obsolete
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
        #: program: the image, by one of bitstream_id, bitstream_name, function_id, function_name
        'image': fields.DictOfStringsField(default={}),
        #: program: facts that the image must match: the vendor of the card, the names and ids of
        #: its board, the types of the region
        'vendor': fields.StringField(nullable=True, default=None),
        'boards': fields.ListOfStringsField(default=[]),
        'region_types': fields.ListOfStringsField(default=[]),
        #: program: the image that is loaded already; it need not be loaded again
        'loaded_image': fields.StringField(nullable=True, default=None),
        #: clean: no other request holds a part of the deployable
        'is_alone': fields.BooleanField(default=True),
        #: clean: the level; None: as the agent is configured
        'cleaning': fields.EnumField(valid_values=tuple(Cleaning), nullable=True, default=None),
        'is_cleaning_required': fields.BooleanField(nullable=True, default=None),
        #: the API request that led to this task
        'request_id': fields.StringField(nullable=True, default=None),
    }


@base.register
class Step(base.CyborgObject):
    """The result of one step of a task."""

    VERSION = '1.0'  # 1.0: first version
    fields = {
        'name': fields.StringField(),
        'seconds': fields.FloatField(),
        #: None: it succeeded
        'error': fields.StringField(nullable=True, default=None),
    }


@base.register
class TaskResult(base.CyborgObject):
    """The result of a task."""

    VERSION = '1.0'  # 1.0: first version
    fields = {
        'task_uuid': fields.UUIDField(),
        'kind': fields.EnumField(valid_values=tuple(TaskKind)),
        'handle_uuid': fields.UUIDField(nullable=True, default=None),
        'generation': fields.IntegerField(),
        #: None: done
        'error': fields.StringField(nullable=True, default=None),
        #: program: whether the driver has begun to load, so that the former content may be lost
        'is_touched': fields.BooleanField(default=True),
        #: program: the image that was loaded
        'image_uuid': fields.UUIDField(nullable=True, default=None),
        #: program: facts about that image from Glance: its name, its functions
        'image_facts': fields.DictOfStringsField(default={}),
        #: program: the content of the deployable that the hardware shows now
        'content': fields.DictOfStringsField(default={}),
        #: whether a retry may succeed
        'can_retry': fields.BooleanField(default=True),
        #: clean: the steps that were tried, in their order
        'steps': fields.ListOfObjectsField('Step', default=[]),
        'seconds': fields.FloatField(default=0.0),
        #: versions of the kernel's driver and the firmware
        'versions': fields.DictOfStringsField(default={}),
    }


@base.register
class HandBack(base.Stamped):
    """How a handle was given back after a request, for its tenant and for operators."""

    # 1.0: first version
    # 1.1: driver_name, handle_type, handle_info; decision and the fields about it
    VERSION = '1.1'
    added = dict.fromkeys(
        (
            'driver_name',
            'handle_type',
            'handle_info',
            'decision',
            'decided_by',
            'decision_reason',
            'decided_at',
        ),
        '1.1',
    )
    fields = {
        'uuid': fields.UUIDField(),
        'kind': fields.EnumField(valid_values=tuple(TaskKind)),
        'state': fields.EnumField(valid_values=tuple(TaskState)),
        'hostname': fields.StringField(),
        'device_uuid': fields.UUIDField(),
        'deployable_uuid': fields.UUIDField(),
        'handle_uuid': fields.UUIDField(),
        #: None and empty once the device or the handle is gone
        'driver_name': fields.StringField(nullable=True),
        'handle_type': fields.StringField(nullable=True),
        'handle_info': fields.DictOfStringsField(default={}),
        'arq_uuid': fields.UUIDField(nullable=True),
        'instance_uuid': fields.UUIDField(nullable=True),
        'project_id': fields.StringField(nullable=True),
        'attempts': fields.IntegerField(),
        'error': fields.StringField(nullable=True),
        'steps': fields.ListOfObjectsField('Step', default=[]),
        'seconds': fields.FloatField(nullable=True),
        'versions': fields.DictOfStringsField(default={}),
        'finished_at': fields.DateTimeField(nullable=True),
        #: the decision of an operator after it had failed, with the operator, reason and time
        'decision': fields.EnumField(valid_values=tuple(Decision), nullable=True),
        'decided_by': fields.StringField(nullable=True),
        'decision_reason': fields.StringField(nullable=True),
        'decided_at': fields.DateTimeField(nullable=True),
    }
