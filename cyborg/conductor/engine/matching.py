# SPDX-License-Identifier: Apache-2.0
"""Whether a bind gives what a request's group asks for."""

from collections.abc import Collection, Mapping

from cyborg import errors
from cyborg.conductor.engine.tasks import ACCEL, CLEANING, CLEANING_REQUIRED, IMAGE_KEYS
from cyborg.db.sqlalchemy import models
from cyborg.db.sqlalchemy.attach_handles import Offer

#: keys of profile groups, and of flavors that os_acc is given, which ask for work at bind
WORK = ('accel:', 'bitstream:', 'function:')
#: what of that is done: an image is loaded, the handle is cleaned as the group says, and is handed
#: to the guest or not
DONE = frozenset({*(f'{ACCEL}{key}' for key in IMAGE_KEYS), CLEANING, CLEANING_REQUIRED,
                  f'{ACCEL}attach_target'})


def require_honoured(what: str, asked: Mapping[str, str],
                     done: Collection[str] = DONE) -> None:
    """Raises GroupNotHonoured for keys on which nothing acts. ``what``: who asks, for the
    message; ``done``: keys on which something acts."""
    ignored = [f'{key}={value}' for key, value in asked.items()
               if key.startswith(WORK) and key not in done]
    if ignored:
        raise errors.GroupNotHonoured(what=what, keys=', '.join(ignored))


def require_fit(arq: models.ExtArq, offer: Offer, rp: str) -> None:
    """ProviderMismatch unless the provider has the class and traits that the group asks for, as
    Placement compares them: those of the provider itself. DeviceDisabled if nothing of it can be
    had now."""
    place = {'uuid': arq.uuid, 'rp': rp, 'host': offer.hostname}
    if offer.is_disabled:
        raise errors.DeviceDisabled(**place)
    classes = _names(arq.group, 'resources:')
    required = _names(arq.group, 'trait:', 'required')
    forbidden = _names(arq.group, 'trait:', 'forbidden')
    if (classes - {offer.resource_class} or required - offer.traits
            or forbidden & offer.traits):
        wanted = [*sorted(classes), *(f'{trait} required' for trait in sorted(required)),
                  *(f'{trait} forbidden' for trait in sorted(forbidden))]
        given = [offer.resource_class or 'no resource class', *sorted(offer.traits)]
        raise errors.ProviderMismatch(**place, wanted=', '.join(wanted), given=', '.join(given))


def _names(group: Mapping[str, str], prefix: str, value: str | None = None) -> set[str]:
    """The classes or traits of a group: all of them, or those with a value."""
    return {key.removeprefix(prefix) for key, text in group.items()
            if key.startswith(prefix) and value in (None, text)}
