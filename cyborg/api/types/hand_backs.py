# SPDX-License-Identifier: Apache-2.0
"""Hand-backs on the wire, and the decision of an operator about a handle."""

from typing import Any, ClassVar

import wsme.types

from cyborg.api.types import documents
from cyborg.api.types.documents import Field
from cyborg.objects import Decision, TaskKind, TaskState


class StepResult(documents.Shown):
    """The result of a step, which in objects is its error or None."""

    basetype, name = str, 'step-result'
    schema: documents.Schema = {'type': 'string', 'enum': [TaskState.DONE, TaskState.FAILED]}

    def tobasetype(self, error: str | None) -> str:
        return TaskState.DONE if error is None else TaskState.FAILED


class Step(documents.Document):
    name = Field(str)
    result = Field(StepResult(), source='error')
    seconds = Field(documents.DURATION)
    reason = Field(str, 'why it failed', nullable=True, source='error')


class HandBack(documents.Document):
    uuid = Field(documents.UUID)
    kind = Field(
        documents.Enum(TaskKind.RELEASE, TaskKind.CLEAN),
        'release: the host takes back what it had prepared; clean: it cleans the handle',
    )
    result = Field(
        documents.Enum(*TaskState),
        'open until the host has ended it; quarantined until an operator decides, then failed; '
        'cancelled if the host was declared gone',
        source='state',
    )
    reason = Field(str, 'why it failed last', nullable=True, source='error')
    hostname = Field(str)
    device_uuid = Field(documents.UUID)
    deployable_uuid = Field(documents.UUID)
    driver_name = Field(str, 'null when the device is gone', nullable=True)
    attach_handle_uuid = Field(documents.UUID, source='handle_uuid')
    attach_handle_type = Field(
        str, 'null when the handle is gone', nullable=True, source='handle_type'
    )
    attach_handle_info = Field(
        {str: str}, 'its address; empty when the handle is gone', source='handle_info'
    )
    arq_uuid = Field(documents.UUID, 'the accelerator request that had the handle', nullable=True)
    instance_uuid = Field(documents.UUID, 'the server that had it', nullable=True)
    project_id = Field(str, nullable=True)
    attempts = Field(documents.COUNT, 'how often the host failed')
    steps = Field([Step], 'the steps of the last attempt, in their order')
    seconds = Field(documents.DURATION, 'how long the last attempt took', nullable=True)
    versions = Field(
        {str: str}, "of the kernel's driver and the firmware at that time, as far as known"
    )
    decision = Field(
        documents.Enum(*Decision),
        'what an operator did about it after it had failed',
        nullable=True,
    )
    decided_by = Field(str, nullable=True)
    decision_reason = Field(str, nullable=True)
    decided_at = Field(documents.MOMENT, nullable=True)
    created_at = Field(documents.MOMENT)
    finished_at = Field(documents.MOMENT, nullable=True)


class HandBackQuery(documents.Listing):
    result = HandBack.result.again()
    attach_handle_uuid = Field(documents.UUID, source='handle_uuid')
    arq_uuid = Field(documents.UUID)
    instance_uuid = Field(documents.UUID)
    project_id = Field(documents.FILTER)
    sort_key = documents.sort_key()


class Release(documents.Body):
    _unknown_keys: ClassVar[bool | documents.Schema | None] = False
    _examples: ClassVar[Any] = ({'reason': 'The disk was erased by hand.'},)

    reason = Field(
        wsme.types.StringType(min_length=1, max_length=1024),
        'why the handle may be given out though it was not cleaned; for the record',
        mandatory=True,
    )
