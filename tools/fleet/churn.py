# SPDX-License-Identifier: Apache-2.0
"""Changes in a fleet: cards are added and removed, requests are bound and deleted."""

import contextlib
import random
import time
import uuid
from typing import TYPE_CHECKING

from cyborg import context, errors, objects
from tools.fleet.host import RESOURCE_CLASS, TRAIT, FleetHost

if TYPE_CHECKING:
    from tools.fleet.process import FleetProcess

PROFILE = 'fleet'
#: seconds until an unfinished bind counts as failed, and between two queries of its state
PATIENCE, PAUSE = 30.0, 0.1


class CardChanges:
    """Adds a card to a random host, or removes the added card again."""

    def __init__(self, process: 'FleetProcess') -> None:
        self._process = process

    def perform(self) -> None:
        host = _random_host(self._process)
        initial = self._process.assignment.devices
        host.cards.count = initial + 1 if host.cards.count == initial else initial
        host.wake()
        self._process.statistics.count('cards')
        self._process.report(host)


class BindRequests:
    """Creates, binds and deletes a request on a random host, with the calls of the API."""

    def __init__(self, process: 'FleetProcess') -> None:
        self._process, self._conductor = process, process.conductor
        with contextlib.suppress(errors.DuplicateProfile):
            self._conductor.create_device_profiles(
                context.internal(),
                [
                    objects.DeviceProfile(
                        uuid=str(uuid.uuid4()),
                        name=PROFILE,
                        groups=[{f'resources:{RESOURCE_CLASS}': '1', f'trait:{TRAIT}': 'required'}],
                    )
                ],
            )

    def perform(self) -> None:
        host, instance, began = _random_host(self._process), str(uuid.uuid4()), time.perf_counter()
        ctxt = context.internal()
        [arq] = self._conductor.create_arqs(ctxt, PROFILE)
        try:
            [arq] = self._conductor.bind_arqs(
                ctxt,
                [
                    objects.Binding(
                        arq_uuid=arq.uuid,
                        hostname=host.name,
                        device_rp_uuid=host.provider(0),
                        instance_uuid=instance,
                    )
                ],
            )
            self._wait(arq)
            self._process.statistics.count('binds')
        finally:
            self._conductor.delete_arqs(
                context.RequestContext(is_admin=True, is_service=True, overwrite=False), [arq.uuid]
            )
        self._process.statistics.add_time('bind', time.perf_counter() - began)

    def _wait(self, arq: objects.Arq) -> None:
        end = time.monotonic() + PATIENCE
        while arq.state != objects.State.BOUND:
            if time.monotonic() > end:
                raise errors.BindFailed(why=f'{arq.uuid} is still {arq.state}.')
            time.sleep(PAUSE)
            arq = self._conductor.get_arq(context.internal(), arq.uuid)


def _random_host(process: 'FleetProcess') -> FleetHost:
    return random.choice(list(process.hosts.values()))
