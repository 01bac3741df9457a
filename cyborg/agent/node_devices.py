# SPDX-License-Identifier: Apache-2.0
"""Waits until libvirt lists a mediated device that the agent has created.

Nova asks libvirt for the node device of a vGPU, and creates the device if libvirt does not list
it. That fails, and the server with it, if the device exists and libvirt has not noticed it yet.
"""

import time
from typing import Any

from oslo_config import cfg
from oslo_log import log

from cyborg import errors, objects
from cyborg.accelerator import pci, sysfs
from os_acc import libvirt

LOG = log.getLogger(__name__)

#: seconds that one virsh command may take
ANSWER_TIMEOUT = 10.0


class NodeDevices:
    """Lists the node devices of a host with virsh, whose read-only socket is open to all users."""

    def __init__(self, conf: cfg.ConfigOpts, host: sysfs.Sysfs) -> None:
        self._timeout = conf.agent.libvirt_timeout
        self._uri = conf.agent.libvirt_uri
        self._host = host

    def wait_for(self, handle: objects.AttachHandle) -> None:
        """Return when libvirt lists the mediated device of a prepared handle.

        Returns at once for other handles, without libvirt, and if [agent] libvirt_timeout is 0.

        :raises DriverFailed: libvirt does not list the device in time.
        """
        address = pci.address_of(handle.info)
        if handle.type != objects.HandleType.MDEV or not self._timeout or not address:
            return
        name = libvirt.node_device(handle.uuid, address)
        try:
            is_shown = libvirt.wait_for_node_device(self, name, self._timeout)
        except FileNotFoundError:
            LOG.debug('Not waiting for %s, because this host has no virsh.', name)
            return
        except OSError as error:
            LOG.warning('Not waiting for %s, because libvirt cannot be asked: %s', name, error)
            return
        if not is_shown:
            raise errors.DriverFailed(
                f'libvirt at {self._uri} does not list {name} {self._timeout} seconds after the '
                'mediated device was created, so Nova could not attach it; see [agent] '
                'libvirt_timeout.'
            )

    def listDevices(self, cap: str, flags: int = 0) -> list[str]:
        """Return the names of node devices with a capability, like libvirt's Python binding."""
        with sysfs.limited(sysfs.Limit(time.monotonic() + ANSWER_TIMEOUT)):
            said: Any = self._host.ask(
                *('virsh', '--readonly', '--quiet', '--connect', self._uri),
                *('nodedev-list', '--cap', cap),
            )
        return str(said).split()
