# SPDX-License-Identifier: Apache-2.0
"""What happens to a fleet: cards come and go, servers are started and deleted."""

import contextlib
import random
import time
import uuid
from typing import TYPE_CHECKING

from cyborg import context, errors, objects
from cyborg.sim.fleet.host import RESOURCE_CLASS, TRAIT, Host

if TYPE_CHECKING:
    from cyborg.sim.fleet.member import Member

PROFILE = 'fleet'
#: seconds until a bind that has not ended counts as failed, and between two looks at it
PATIENCE, PAUSE = 30.0, 0.1


class Cards:
    """A host gets a card more, another time it loses it again."""

    def __init__(self, member: 'Member') -> None:
        self._member = member

    def happen(self) -> None:
        host = _any(self._member)
        at_first = self._member.order.devices
        host.cards.count = at_first + 1 if host.cards.count == at_first else at_first
        host.wake()
        self._member.figures.count('cards')
        self._member.look(host)


class Binds:
    """A request from its creation to its end, as the API has conductors see to it."""

    def __init__(self, member: 'Member') -> None:
        self._member, self._conductor = member, member.conductor
        with contextlib.suppress(errors.DuplicateProfile):
            self._conductor.create_device_profiles(context.internal(), [objects.DeviceProfile(
                uuid=str(uuid.uuid4()), name=PROFILE, groups=[
                    {f'resources:{RESOURCE_CLASS}': '1', f'trait:{TRAIT}': 'required'}])])

    def happen(self) -> None:
        host, instance, began = _any(self._member), str(uuid.uuid4()), time.perf_counter()
        ctxt = context.internal()
        [arq] = self._conductor.create_arqs(ctxt, PROFILE)
        try:
            [arq] = self._conductor.bind_arqs(ctxt, [objects.Binding(
                arq_uuid=arq.uuid, hostname=host.name, device_rp_uuid=host.provider(0),
                instance_uuid=instance)])
            self._wait(arq)
            self._member.figures.count('binds')
        finally:
            self._conductor.delete_arqs(
                context.RequestContext(is_admin=True, is_service=True, overwrite=False),
                [arq.uuid])
        self._member.figures.took('bind', time.perf_counter() - began)

    def _wait(self, arq: objects.Arq) -> None:
        end = time.monotonic() + PATIENCE
        while arq.state != objects.State.BOUND:
            if time.monotonic() > end:
                raise errors.BindFailed(why=f'{arq.uuid} is still {arq.state}.')
            time.sleep(PAUSE)
            arq = self._conductor.get_arq(context.internal(), arq.uuid)


def _any(member: 'Member') -> Host:
    return random.choice(list(member.hosts.values()))
