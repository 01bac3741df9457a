# SPDX-License-Identifier: Apache-2.0
"""Checks that a bind gives a request what its group asks for."""

from collections.abc import Collection, Mapping

from cyborg import errors
from cyborg.conductor.engine.tasks import ACCEL, CLEANING, CLEANING_REQUIRED, IMAGE_PROPERTIES
from cyborg.db.sqlalchemy import models
from cyborg.db.sqlalchemy.attach_handles import Offer

#: keys of profile groups, and of flavors in calls of os_acc, that ask for work at a bind
WORK = ('accel:', 'bitstream:', 'function:')
#: those that Cyborg acts on: an image is loaded, the handle is cleaned as the group says, and is
#: attached to the guest or not
DONE = frozenset({*IMAGE_PROPERTIES, CLEANING, CLEANING_REQUIRED, f'{ACCEL}attach_target'})


def require_honoured(what: str, asked: Mapping[str, str], done: Collection[str] = DONE) -> None:
    """Raises GroupNotHonoured for keys on which Cyborg does not act. ``what`` is the subject of
    the message; ``done`` are the keys on which Cyborg acts."""
    ignored = [
        f'{key}={value}' for key, value in asked.items() if key.startswith(WORK) and key not in done
    ]
    if ignored:
        raise errors.GroupNotHonoured(what=what, keys=', '.join(ignored))


def require_fit(arq: models.ExtArq, offer: Offer, rp: str) -> None:
    """Raises ProviderMismatch unless the provider itself has the class and traits that the group
    asks for, as Placement compares them. Raises DeviceDisabled if its device is disabled or has a
    fault."""
    place = {'uuid': arq.uuid, 'rp': rp, 'host': offer.hostname}
    if offer.host_disabled is not None:
        # no new class of error: an API of the previous release would not know it
        raise errors.DeviceDisabled(
            f'Accelerator request {arq.uuid} cannot be bound on {offer.hostname}, where an '
            f'operator has disabled the agent: {offer.host_disabled}'
        )
    if offer.is_disabled:
        raise errors.DeviceDisabled(**place)
    if offer.fault is not None:
        raise errors.DeviceDisabled(
            f'Accelerator request {arq.uuid} cannot be bound to resource provider {rp} on '
            f'{offer.hostname}, whose device has a fault: {offer.fault}'
        )
    classes = _names(arq.group, 'resources:')
    required = _names(arq.group, 'trait:', 'required')
    forbidden = _names(arq.group, 'trait:', 'forbidden')
    if classes - {offer.resource_class} or required - offer.traits or forbidden & offer.traits:
        wanted = [
            *sorted(classes),
            *(f'{trait} required' for trait in sorted(required)),
            *(f'{trait} forbidden' for trait in sorted(forbidden)),
        ]
        given = [offer.resource_class or 'no resource class', *sorted(offer.traits)]
        raise errors.ProviderMismatch(**place, wanted=', '.join(wanted), given=', '.join(given))


def _names(group: Mapping[str, str], prefix: str, value: str | None = None) -> set[str]:
    """Returns the classes or traits of a group: all of them, or those with this value."""
    return {
        key.removeprefix(prefix)
        for key, text in group.items()
        if key.startswith(prefix) and value in (None, text)
    }
