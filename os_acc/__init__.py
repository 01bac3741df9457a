# SPDX-License-Identifier: Apache-2.0
"""The library that nova-compute calls to attach accelerators to instances on its host.

Call initialize() once at start, plug() before the domain of an instance is defined, and
unplug() when the instance no longer uses its accelerators. Arguments are not changed, and
every function may be called from any thread.
"""

import logging
import threading
from collections.abc import Mapping
from typing import NamedTuple, cast

import oslo_messaging as messaging
from oslo_config import cfg
from oslo_messaging.transport import RPCTransport

from os_acc import arguments, client, hosts
from os_acc import conf as options
from os_acc.arguments import Attachment, InstanceInfo
from os_acc.errors import (
    AgentError,
    AlreadyPlugged,
    CyborgAgentUnavailable,
    InvalidArgument,
    NotInitialized,
    OsAccError,
    PlugFailed,
    UnplugFailed,
)

__all__ = [
    'AgentError',
    'AlreadyPlugged',
    'Attachment',
    'CyborgAgentUnavailable',
    'InstanceInfo',
    'InvalidArgument',
    'NotInitialized',
    'OsAccError',
    'PlugFailed',
    'UnplugFailed',
    'initialize',
    'plug',
    'unplug',
]

LOG = logging.getLogger(__name__)


class _Settings(NamedTuple):
    """The settings that identify an agent and the connection to it."""

    host: str
    exchange: str
    transport_url: str | None
    transport: RPCTransport | None


class _Link(NamedTuple):
    """The state that initialize() stores for plug() and unplug()."""

    settings: _Settings
    agent: client.Agent
    call_timeout: float


_lock = threading.Lock()
_link: _Link | None = None


def initialize(
    conf: cfg.ConfigOpts | None = None,
    *,
    host: str | None = None,
    transport: RPCTransport | None = None,
    timeout: float | None = None,
) -> None:
    """Wait until the agent of this host has published all its devices.

    Call it once at start; a repeated call does no harm. After it has raised, plug() and
    unplug() work as soon as the agent does.

    :param conf: the configuration with ``[os_acc]``; the global one by default.
    :param host: instead of ``[os_acc] host``.
    :param transport: instead of one made from ``[os_acc] transport_url``.
    :param timeout: seconds, instead of ``[os_acc] ready_timeout``.
    :raises CyborgAgentUnavailable: it cannot be contacted, or is not ready in time.

    With ``conf``, ``host`` and ``transport`` of this compute host:

    >>> initialize(conf, host=host, transport=transport)
    """
    conf = cfg.CONF if conf is None else conf
    options.register_opts(conf)
    section = conf.os_acc
    settings = _Settings(
        host=host or section.host or hosts.node_name(),
        exchange=section.exchange,
        transport_url=section.transport_url,
        transport=transport,
    )
    agent = _connect(conf, settings)
    agent.wait_until_ready(section.ready_timeout if timeout is None else timeout)
    LOG.info('The Cyborg agent of host %s is ready', agent.host)


def plug(
    instance_info: Mapping[str, object],
    selected_rp: Mapping[str, object],
    flavor_extra_specs: Mapping[str, str],
) -> list[Attachment]:
    """Prepare the accelerators that the flavor asks for, and return what to attach.

    :param instance_info: ``uuid``, ``name``, ``project_id`` and ``image_uuid``, see
        :class:`InstanceInfo`.
    :param selected_rp: ``{'uuid': provider}`` or, as Nova's scheduler has it,
        ``{'device_profile_0': [provider], ...}``.
    :param flavor_extra_specs: all of the flavor's, with ``accel:device_profile`` or
        plain ``resources:`` and ``trait:`` keys. If the flavor, its profile or the image of
        the instance names a bitstream for an FPGA, it is loaded first.
    :returns: one entry per accelerator.
    :raises InvalidArgument: an argument is not valid; nothing was sent.
    :raises PlugFailed: the agent refused or failed; the instance holds no accelerator.
    :raises AlreadyPlugged: the instance holds other accelerators on this host than this
        plug asks for, and keeps them. Call unplug() first.
    :raises CyborgAgentUnavailable: it is unknown whether the agent acted; unplug() undoes
        its work.

    >>> instance = {'uuid': '5a0c2a3e-7d6c-4ad8-9d3d-0f4d8b0d6c11', 'name': 'vm1',
    ...             'project_id': '7b1f0c2f9b0c4b6f8f5a9e2d3c4b5a69', 'image_uuid': None}
    >>> [accelerator] = plug(
    ...     instance, {'device_profile_0': ['c3b5a1f0-8e3d-4c60-9a53-0c8f4f3b7d21']},
    ...     {'accel:device_profile': 'one-fpga', 'hw:cpu_policy': 'dedicated'})
    >>> accelerator['pci_id']
    '0000:3b:00.4'
    """
    instance = arguments.owned_instance(instance_info)
    selected = arguments.providers(selected_rp)
    specs = arguments.extra_specs(flavor_extra_specs)
    agent, timeout = _initialized()
    attachments = agent.plug(
        timeout, instance_info=instance, selected_rp=selected, flavor_extra_specs=specs
    )
    LOG.info('%d accelerators for instance %s', len(attachments), _label(instance))
    return cast(list[Attachment], attachments)


def unplug(instance_info: Mapping[str, object]) -> int:
    """Release all accelerators of the instance. It need not have any.

    :param instance_info: ``uuid`` and ``name``.
    :returns: how many were released.
    :raises InvalidArgument: an argument is not valid; nothing was sent.
    :raises UnplugFailed: the agent failed; the message has the reason.
    :raises CyborgAgentUnavailable: call again later.

    >>> unplug({'uuid': '5a0c2a3e-7d6c-4ad8-9d3d-0f4d8b0d6c11', 'name': 'vm1'})
    1
    >>> unplug({'uuid': '5a0c2a3e-7d6c-4ad8-9d3d-0f4d8b0d6c11', 'name': 'vm1'})
    0
    """
    instance = arguments.named_instance(instance_info)
    agent, timeout = _initialized()
    released = agent.change('unplug', timeout, UnplugFailed, instance_info=instance)
    LOG.info('%d accelerators released by instance %s', released, _label(instance))
    return cast(int, released)


def _connect(conf: cfg.ConfigOpts, settings: _Settings) -> client.Agent:
    """Returns the client of the agent: the same object as long as the settings are the same."""
    global _link
    with _lock:
        if _link is None or _link.settings != settings:
            transport = settings.transport or _transport(conf, settings)
            agent = client.Agent(transport, settings.host, settings.exchange)
        else:
            agent = _link.agent
        _link = _Link(settings, agent, conf.os_acc.call_timeout)
        return agent


def _transport(conf: cfg.ConfigOpts, settings: _Settings) -> RPCTransport:
    try:
        return messaging.get_rpc_transport(conf, url=settings.transport_url)
    except (messaging.MessagingException, ValueError) as error:
        # The text of the error may have the whole URL, with the password of the broker.
        raise CyborgAgentUnavailable(
            settings.host, f'transport_url cannot be used ({type(error).__name__}).'
        ) from None


def _initialized() -> tuple[client.Agent, float]:
    link = _link
    if link is None:
        raise NotInitialized()
    return link.agent, link.call_timeout


def _label(instance: Mapping[str, object]) -> str:
    return f'{instance["name"]} ({instance["uuid"]})'
