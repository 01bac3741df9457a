# SPDX-License-Identifier: Apache-2.0
"""One model of the world: drivers build it, RPC carries it, rows turn into it."""

from cyborg.objects.arq_states import State
from cyborg.objects.base import CyborgObject, Serializer
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
from cyborg.objects.requests import Arq, Binding, DeviceProfile, Transition
from cyborg.objects.tasks import HandBack, Step, Task, TaskKind, TaskResult, TaskState

__all__ = [
    'Agent', 'Arq', 'AttachHandle', 'Attribute', 'Binding', 'Cleaning', 'ControlPath',
    'CyborgObject', 'Deployable', 'Device', 'DeviceProfile', 'DeviceStatus', 'Driver',
    'DriverStatus', 'HandBack', 'HandleType', 'Plan', 'Provider', 'Report', 'Serializer',
    'State', 'Step', 'Task', 'TaskKind', 'TaskResult', 'TaskState', 'Transition', 'Withheld',
]
