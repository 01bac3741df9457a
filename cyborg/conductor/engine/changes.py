# SPDX-License-Identifier: Apache-2.0
"""Changes of state as plain values. Each is written to the log after its commit.

They refer to no rows, which may be deleted when the change is logged or sent.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from oslo_log import log

from cyborg import objects
from cyborg.db.sqlalchemy import history, models
from cyborg.objects import TaskKind
from cyborg.objects.arq_states import Event

LOG = log.getLogger('cyborg.changes')

#: the subject of a change, by the first part of its event
NOUNS = {
    'arq': 'Accelerator request',
    'device': 'Device',
    'agent': 'Agent',
    'device_profile': 'Device profile',
    'task': 'Task',
}
#: steps of requests that operators may act upon
TROUBLE = frozenset({Event.FAILED, Event.REFUSED})
#: columns of a task that are logged
TASK_FACTS = (
    'kind',
    'hostname',
    'device_uuid',
    'deployable_uuid',
    'handle_uuid',
    'image_uuid',
    'arq_uuid',
    'instance_uuid',
    'project_id',
    'attempts',
)
#: kinds of tasks of which only failures are logged: the state of their request shows the rest
QUIET = frozenset({TaskKind.PREPARE, TaskKind.RELEASE})


@dataclass(frozen=True)
class Change:
    """One change of state: ``event`` is its noun and its verb, such as ``device.disabled``."""

    event: str
    uuid: str | None
    facts: Mapping[str, Any] = field(default_factory=dict)
    level: int = log.INFO
    #: the row of the profile that a request was made with
    device_profile_id: int | None = None

    @property
    def payload(self) -> dict[str, Any]:
        """Returns all facts."""
        return {'uuid': self.uuid, **self.facts}

    def render(self, cause: history.Cause) -> str:
        """Returns the line of the log: facts as key=value, in quotes if they hold spaces."""
        noun, _, verb = self.event.partition('.')
        name = self.uuid or self.facts.get('hostname')
        facts = {**self.facts, 'actor': cause.actor, 'request_id': cause.request_id}
        told = ' '.join(
            f'{name}={_quoted(value)}'
            for name, value in facts.items()
            if value is not None and value != []
        )
        return f'{NOUNS[noun]} {name}: {verb} {told}'


def of_step(made: history.Change) -> Change:
    """Returns the change of a step in the history of a request."""
    step = made.row
    return Change(
        f'arq.{step["event"]}',
        step['arq_uuid'],
        {
            'state': str(step['to_state']),
            'before': step['from_state'] and str(step['from_state']),
            'hostname': step['hostname'],
            'instance_uuid': step['instance_uuid'],
            'project_id': step['project_id'],
            'resource_class': made.resource_class,
            'reason': step['reason'],
        },
        log.WARNING if step['event'] in TROUBLE else log.INFO,
        made.device_profile_id,
    )


def of_task(task: models.Task, verb: str, error: str | None = None, **facts: object) -> Change:
    """Returns the change of a task: created, done, failed, retried…"""
    facts = {name: getattr(task, name) for name in TASK_FACTS} | facts
    if error is not None:
        level = log.WARNING
    else:
        level = log.DEBUG if task.kind in QUIET else log.INFO
    return Change(f'task.{verb}', task.uuid, facts | {'error': error}, level)


def of_profile(profile: objects.DeviceProfile, verb: str, changed: Sequence[str] = ()) -> Change:
    """Returns the change of a device profile; ``changed``: the fields that were written."""
    facts = {
        'name': profile.name,
        'groups': profile.groups,
        'is_enabled': profile.is_enabled,
        'project_ids': profile.project_ids,
        'changed': list(changed),
    }
    return Change(f'device_profile.{verb}', profile.uuid, facts)


def of_agent(
    hostname: str, verb: str, level: int = log.INFO, uuid: str | None = None, **facts: object
) -> Change:
    """Returns the change of an agent, which is named by its host."""
    return Change(f'agent.{verb}', uuid, {'hostname': hostname, **facts}, level)


def write(cause: history.Cause, told: list[Change]) -> None:
    """Write changes to the log."""
    for change in told:
        if LOG.isEnabledFor(change.level):
            LOG.log(change.level, change.render(cause))


def _quoted(value: object) -> str:
    """Returns a value as one word, so that a value cannot forge a line of the log."""
    text = ','.join(map(str, value)) if isinstance(value, list | tuple) else str(value)
    is_word = text.isascii() and text.isprintable() and not set(text) & set(' "=')
    return text if is_word and text else json.dumps(text)
