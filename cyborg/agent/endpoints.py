# SPDX-License-Identifier: Apache-2.0
"""What an agent answers to: the conductor's casts, and os_acc's calls from nova-compute."""

import time
from typing import Any

import oslo_messaging as messaging
from oslo_config import cfg

from cyborg import context, errors, objects
from cyborg.agent.attach import Attacher
from cyborg.agent.inventory import Inventory
from cyborg.conductor.rpcapi import ConductorAPI


class Conducted:
    """The conductor's casts."""

    target = messaging.Target(version='1.0')

    def __init__(self, inventory: Inventory, attacher: Attacher) -> None:
        self._inventory = inventory
        self._attacher = attacher

    def do(self, context: Any, works: list[objects.Work]) -> None:
        """Attach and detach."""
        self._attacher.do(works)

    def wake(self, context: Any) -> None:
        """Report now."""
        self._inventory.wake(must_report=True, cause=context.global_id)


class OsAcc:
    """os_acc's calls, in a namespace and with a version of their own: plain data both ways."""

    target = messaging.Target(namespace='os_acc', version='1.0')

    def __init__(self, conf: cfg.ConfigOpts, hostname: str, inventory: Inventory,
                 conductor: ConductorAPI) -> None:
        self._timeout = conf.conductor.bind_timeout
        self._hostname = hostname
        self._inventory = inventory
        self._conductor = conductor

    def is_ready(self, ctxt: Any) -> bool:
        """All devices are enumerated and their traits published."""
        return self._inventory.is_ready.is_set()

    @messaging.expected_exceptions(errors.CyborgError)
    def plug(self, ctxt: Any, instance_info: dict[str, str], selected_rp: dict[str, Any],
             flavor_extra_specs: dict[str, str]) -> list[dict[str, str]]:
        """Create and bind; answers when the host has prepared everything."""
        give_up = time.monotonic() + self._timeout
        arqs = self._begun(give_up, instance_info, selected_rp, flavor_extra_specs)
        try:
            return [_shown(arq) for arq in self._settled(give_up, arqs)]
        except errors.BindFailed:
            self._conductor.unplug_instance(
                context.internal(), self._hostname, instance_info['uuid'])
            raise

    @messaging.expected_exceptions(errors.CyborgError)
    def unplug(self, ctxt: Any, instance_info: dict[str, str]) -> int:
        """Release what the server has here."""
        return self._conductor.unplug_instance(
            context.internal(), self._hostname, instance_info['uuid'])

    def _begun(self, give_up: float, *what: dict[str, Any]) -> list[objects.Arq]:
        """Create and bind, as soon as what this host still cleans up can be had."""
        pause = 0.02
        while True:
            try:
                return self._conductor.plug_instance(
                    context.internal(), self._hostname, *what)
            except errors.HandleNotClean:
                if time.monotonic() > give_up:
                    raise
            time.sleep(pause)
            pause = min(pause * 1.5, 1)

    def _settled(self, give_up: float, arqs: list[objects.Arq]) -> list[objects.Arq]:
        """Wait until all are bound; the conductor fails them by their deadline."""
        uuids, pause = [arq.uuid for arq in arqs], 0.02
        while any(arq.state != objects.State.BOUND for arq in arqs):
            failed = next((arq for arq in arqs if arq.state == objects.State.BIND_FAILED), None)
            if failed is not None or time.monotonic() > give_up:
                why = failed.reason if failed is not None else 'the host takes too long.'
                raise errors.BindFailed(why=why)
            time.sleep(pause)
            pause = min(pause * 1.5, 1)
            arqs = self._conductor.list_arqs(context.internal(), {'uuid': uuids}, {})
            if len(arqs) < len(uuids):
                raise errors.BindFailed(why='the requests were deleted meanwhile.')
        return arqs


def _shown(arq: objects.Arq) -> dict[str, str]:
    info = arq.attach_handle_info
    shown = {'arq_uuid': arq.uuid,
             'pci_id': '{domain}:{bus}:{device}.{function}'.format(**info)}
    if arq.attach_handle_type == objects.HandleType.MDEV:
        shown['mdev_uuid'] = arq.attach_handle_uuid
    if 'asked_type' in info:
        shown['asked_type'] = info['asked_type']
    return shown
