# SPDX-License-Identifier: Apache-2.0
"""For how long servers had accelerators."""

from cyborg.objects import base, fields


@base.register
class ProjectUsage(base.CyborgObject):
    """What a project used of one resource class by one device profile."""

    VERSION = '1.0'  # 1.0: first version
    fields = {
        'project_id': fields.StringField(nullable=True),
        #: the name that it had when the requests were created; None: os_acc came without a profile
        'device_profile_name': fields.StringField(nullable=True),
        #: None: an earlier release recorded the steps
        'resource_class': fields.StringField(nullable=True),
        #: number of requests that were in use
        'requests': fields.IntegerField(),
        #: sum over these requests
        'hours': fields.FloatField(),
    }


@base.register
class Usage(base.CyborgObject):
    """Usage between two moments."""

    VERSION = '1.0'  # 1.0: first version
    fields = {
        #: the time that is counted, which may be shorter than was asked for
        'start': fields.DateTimeField(),
        'end': fields.DateTimeField(),
        #: earlier history may be deleted, and is not counted
        'complete_since': fields.DateTimeField(),
        'projects': fields.ListOfObjectsField('ProjectUsage'),
    }
