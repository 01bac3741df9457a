# SPDX-License-Identifier: Apache-2.0
"""RPC endpoints of an agent: casts from conductors, and calls from os_acc in nova-compute."""

import contextlib
import functools
from collections.abc import Iterator
from typing import Any

import oslo_messaging as messaging
from oslo_config import cfg

from cyborg import context, errors, objects, rpc
from cyborg.agent.bitstreams import Bitstreams
from cyborg.agent.inventory import Inventory
from cyborg.agent.worker import Worker
from cyborg.conductor.rpcapi import ConductorAPI
from cyborg.objects import manifests
from os_acc import polling

#: seconds between two checks whether a plug is done: the first and the longest interval
PAUSES = 0.02, 1.0


class AgentEndpoint:
    """Receives what conductors send with AgentAPI."""

    target = messaging.Target(version=manifests.NEWEST)

    def __init__(self, inventory: Inventory, worker: Worker) -> None:
        self._inventory = inventory
        self._worker = worker

    def perform(self, context: Any, tasks: list[objects.Task]) -> None:
        """Queue tasks."""
        self._worker.perform(tasks)

    def wake(self, context: Any) -> None:
        """Start a round of the inventory, which reports even if nothing has changed."""
        self._inventory.wake(must_report=True, cause=context.global_id)


class OsAccEndpoint:
    """Receives calls of os_acc, which have their own namespace and version and use plain data."""

    target = messaging.Target(namespace='os_acc', version='1.2')

    def __init__(
        self,
        conf: cfg.ConfigOpts,
        hostname: str,
        inventory: Inventory,
        conductor: ConductorAPI,
        bitstreams: Bitstreams,
    ) -> None:
        self._timeout = conf.conductor.bind_timeout
        self._hostname = hostname
        self._inventory = inventory
        self._conductor = conductor
        self._bitstreams = bitstreams

    def is_ready(self, ctxt: Any) -> bool:
        """Return whether the agent is ready."""
        return self._inventory.readiness.obstacle() is None

    def obstacle(self, ctxt: Any) -> str | None:
        """Return why the agent is not ready, or None if it is."""
        return self._inventory.readiness.obstacle()

    @rpc.expecting_errors
    def plug(
        self,
        ctxt: Any,
        instance_info: dict[str, str],
        selected_rp: dict[str, Any],
        flavor_extra_specs: dict[str, str],
        wait: bool = True,
        again: bool = False,
    ) -> list[dict[str, str]] | None:
        """Create and bind the requests of a server; returns when the host has prepared them.

        Without ``wait`` it returns None if they are not prepared yet; the caller then repeats the
        call with ``again``. Callers of version 1.0 wait, and occupy a thread of the RPC server.
        """
        for number, _ in enumerate(polling.attempts(self._timeout if wait else 0, PAUSES)):
            plugged = self._plugged(
                again or number > 0, instance_info, selected_rp, flavor_extra_specs
            )
            if plugged is not None or not wait:
                return plugged
        self._unplug(instance_info)
        raise errors.BindFailed(why='the host takes too long.')

    @rpc.expecting_errors
    def unplug(self, ctxt: Any, instance_info: dict[str, str]) -> int:
        """Release the handles of a server on this host; returns how many."""
        return self._unplug(instance_info)

    def _plugged(
        self, again: bool, instance: dict[str, str], *what: dict[str, Any]
    ) -> list[dict[str, str]] | None:
        """Return the handles of the server if all are bound, else None."""
        try:
            arqs = self._plug(instance, *what)
            return [_shown(arq) for arq in arqs] if objects.are_bound(arqs) else None
        except errors.HandleNotClean:  # this host is still cleaning it
            return None
        except errors.BindFailed:
            self._unplug(instance)
            if again:
                raise
        # the failed requests were left by an earlier call whose caller has gone
        return self._plugged(True, instance, *what)

    def _plug(
        self, instance: dict[str, str], providers: dict[str, Any], extra_specs: dict[str, str]
    ) -> list[objects.Arq]:
        """Call the conductor, and read the image of the server from Glance if it asks for that.

        A host without [glance], or without a driver that loads images, programs nothing, so the
        image is not read there. On others a conductor says whether it must be; one of the previous
        release does not know.
        """
        ask = functools.partial(
            self._conductor.plug_instance,
            context.internal(),
            self._hostname,
            instance,
            providers,
            extra_specs,
        )
        with _outcome():
            try:
                loads_images = self._bitstreams.has_glance and self._inventory.can_program
                may_ask = loads_images and instance.get('image_uuid')
                return ask(image_request=None if may_ask else {})
            except (errors.ServerImageUnread, errors.IncompatibleRelease):
                wish = self._bitstreams.vm_image_request(
                    instance['image_uuid'], instance.get('project_id')
                )
            return ask(image_request=wish)

    def _unplug(self, instance: dict[str, str]) -> int:
        with _outcome():
            return self._conductor.unplug_instance(
                context.internal(), self._hostname, instance['uuid']
            )


@contextlib.contextmanager
def _outcome() -> Iterator[None]:
    """Raise OutcomeUnknown if it is unknown whether the conductor performed the call."""
    try:
        yield
    except errors.Unavailable as error:
        raise errors.OutcomeUnknown(why=error.faultstring) from error
    except messaging.MessagingException as error:
        raise errors.OutcomeUnknown(why=str(error).partition('\n')[0]) from error


def _shown(arq: objects.Arq) -> dict[str, str]:
    info = arq.attach_handle_info
    shown = {'arq_uuid': arq.uuid, 'pci_id': '{domain}:{bus}:{device}.{function}'.format(**info)}
    if arq.attach_handle_type == objects.HandleType.MDEV:
        shown['mdev_uuid'] = arq.attach_handle_uuid
    # not attached to a guest: the group says so, or the fake driver made the handle
    if arq.attach_handle_type == objects.HandleType.TEST_PCI:
        target = arq.group.get('accel:attach_target')
        shown['attach_target'] = target if target == 'host' else 'none'
    if 'asked_type' in info:
        shown['asked_type'] = info['asked_type']
    return shown
