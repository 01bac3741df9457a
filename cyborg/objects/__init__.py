# SPDX-License-Identifier: Apache-2.0
"""The data model: drivers build these objects, RPC sends them, rows are converted to them."""

from cyborg.objects.arq_states import State
from cyborg.objects.arqs import Arq, Binding, DeviceProfile, Transition, are_bound
from cyborg.objects.availability import (
    Availability,
    GroupAvailability,
    HostAvailability,
    Obstacle,
)
from cyborg.objects.base import CyborgObject, Serializer
from cyborg.objects.capacity import (
    DeployableUnits,
    DeviceUnits,
    HostUnits,
    ModelCapacity,
    Unit,
)
from cyborg.objects.devices import (
    AttachHandle,
    Attribute,
    Cleaning,
    ControlPath,
    Deployable,
    Device,
    DeviceStatus,
    HandleType,
    Withheld,
)
from cyborg.objects.hosts import (
    Agent,
    Driver,
    DriverStatus,
    Plan,
    Provider,
    Report,
)
from cyborg.objects.tasks import Decision, HandBack, Step, Task, TaskKind, TaskResult, TaskState
from cyborg.objects.usage import ProjectUsage, Usage

__all__ = [
    'Agent',
    'Arq',
    'AttachHandle',
    'Attribute',
    'Availability',
    'Binding',
    'Cleaning',
    'ControlPath',
    'CyborgObject',
    'Decision',
    'Deployable',
    'DeployableUnits',
    'Device',
    'DeviceProfile',
    'DeviceStatus',
    'DeviceUnits',
    'Driver',
    'DriverStatus',
    'GroupAvailability',
    'HandBack',
    'HandleType',
    'HostAvailability',
    'HostUnits',
    'ModelCapacity',
    'Obstacle',
    'Plan',
    'ProjectUsage',
    'Provider',
    'Report',
    'Serializer',
    'State',
    'Step',
    'Task',
    'TaskKind',
    'TaskResult',
    'TaskState',
    'Transition',
    'Unit',
    'Usage',
    'Withheld',
    'are_bound',
]
