# SPDX-License-Identifier: Apache-2.0
"""What an agent answers to: the conductor's casts, and os_acc's calls from nova-compute."""

import contextlib
import time
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

import oslo_messaging as messaging
from oslo_config import cfg

from cyborg import context, errors, objects
from cyborg.agent.inventory import Inventory
from cyborg.agent.worker import Worker
from cyborg.conductor.rpcapi import ConductorAPI


class Conducted:
    """The conductor's casts."""

    target = messaging.Target(version='2.0')

    def __init__(self, inventory: Inventory, worker: Worker) -> None:
        self._inventory = inventory
        self._worker = worker

    def perform(self, context: Any, tasks: list[objects.Task]) -> None:
        """Begin tasks."""
        self._worker.perform(tasks)

    def wake(self, context: Any) -> None:
        """Report now."""
        self._inventory.wake(must_report=True, cause=context.global_id)


class OsAcc:
    """os_acc's calls, in a namespace and with a version of their own: plain data both ways."""

    target = messaging.Target(namespace='os_acc', version='1.2')

    def __init__(self, conf: cfg.ConfigOpts, hostname: str, inventory: Inventory,
                 conductor: ConductorAPI) -> None:
        self._timeout = conf.conductor.bind_timeout
        self._hostname = hostname
        self._inventory = inventory
        self._conductor = conductor

    def is_ready(self, ctxt: Any) -> bool:
        """Whether nothing is in the way; see obstacle()."""
        return self._inventory.readiness.obstacle() is None

    def obstacle(self, ctxt: Any) -> str | None:
        """Why the agent is not ready; None if it is."""
        return self._inventory.readiness.obstacle()

    @messaging.expected_exceptions(errors.CyborgError)
    def plug(self, ctxt: Any, instance_info: dict[str, str], selected_rp: dict[str, Any],
             flavor_extra_specs: dict[str, str], wait: bool = True,
             again: bool = False) -> list[dict[str, str]] | None:
        """Create and bind; answers when the host has prepared everything.

        Without ``wait``, None says that it has not yet, and that the same should be asked
        ``again``. Callers of version 1.0 wait here, and use up threads that receive messages.
        """
        give_up, pause = time.monotonic() + self._timeout, 0.02
        while True:
            plugged = self._plugged(again, instance_info, selected_rp, flavor_extra_specs)
            if plugged is not None or not wait:
                return plugged
            if time.monotonic() > give_up:
                self._give_up(instance_info, 'the host takes too long.')
            time.sleep(pause)
            pause, again = min(pause * 1.5, 1), True

    @messaging.expected_exceptions(errors.CyborgError)
    def unplug(self, ctxt: Any, instance_info: dict[str, str]) -> int:
        """Release what the server has here."""
        return self._unplug(instance_info)

    def _plugged(self, again: bool, instance: dict[str, str],
                 *what: dict[str, Any]) -> list[dict[str, str]] | None:
        """What the server has, once all of it is bound."""
        try:
            arqs = self._plug(instance, *what)
            if not again and _failure(arqs):  # left from an attempt whose caller went away
                self._unplug(instance)
                arqs = self._plug(instance, *what)
        except errors.HandleNotClean:  # it can be had as soon as this host has cleaned it
            return None
        if failure := _failure(arqs):
            self._give_up(instance, failure)
        is_done = all(arq.state == objects.State.BOUND for arq in arqs)
        return [_shown(arq) for arq in arqs] if is_done else None

    def _plug(self, instance: dict[str, str], *what: dict[str, Any]) -> list[objects.Arq]:
        with _outcome():
            return self._conductor.plug_instance(
                context.internal(), self._hostname, instance, *what)

    def _unplug(self, instance: dict[str, str]) -> int:
        with _outcome():
            return self._conductor.unplug_instance(
                context.internal(), self._hostname, instance['uuid'])

    def _give_up(self, instance: dict[str, str], why: str) -> NoReturn:
        self._unplug(instance)
        raise errors.BindFailed(why=why)


@contextlib.contextmanager
def _outcome() -> Iterator[None]:
    """OutcomeUnknown if the conductor may have done what it was asked although it did not
    answer, or not with one of our errors."""
    try:
        yield
    except errors.Unavailable as error:
        raise errors.OutcomeUnknown(why=error.faultstring) from error
    except messaging.MessagingException as error:
        raise errors.OutcomeUnknown(why=str(error).partition('\n')[0]) from error


def _failure(arqs: Sequence[objects.Arq]) -> str | None:
    """Why a bind failed, if it did."""
    return next((arq.reason or 'its host could not prepare it.' for arq in arqs
                 if arq.state == objects.State.BIND_FAILED), None)


def _shown(arq: objects.Arq) -> dict[str, str]:
    info = arq.attach_handle_info
    shown = {'arq_uuid': arq.uuid,
             'pci_id': '{domain}:{bus}:{device}.{function}'.format(**info)}
    if arq.attach_handle_type == objects.HandleType.MDEV:
        shown['mdev_uuid'] = arq.attach_handle_uuid
    if 'asked_type' in info:
        shown['asked_type'] = info['asked_type']
    return shown
