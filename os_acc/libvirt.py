# SPDX-License-Identifier: Apache-2.0
"""Accelerators in libvirt: ``<hostdev>`` elements, node devices, owners of mdevs.

It reads and writes text only, so neither libvirt nor Nova needs to be installed.

>>> [gpu] = hostdevs([{'pci_id': '0000:3b:00.0', 'mdev_uuid': MDEV, 'asked_type': 'nvidia-222'}])
>>> gpu.is_managed
False
>>> from_xml(gpu.to_xml()) == [gpu]
True
"""

import dataclasses
import enum
import logging
import re
import uuid
from collections.abc import Iterable, Mapping
from typing import Protocol, Self
from xml.etree import ElementTree

from os_acc import errors, polling

LOG = logging.getLogger(__name__)

#: An mdev for the examples of this module.
MDEV = '91ac1606-427e-44bb-8233-f4ff4bf3d241'
#: The parts of the address of a request, with the largest value of each.
PARTS = {'domain': 0xFFFFFFFF, 'bus': 0xFF, 'device': 0x1F, 'function': 0x7}
ADDRESS = re.compile(
    r'(?P<domain>[0-9a-f]{1,8}):(?P<bus>[0-9a-f]{1,2}):(?P<device>[0-9a-f]{1,2})\.(?P<function>[0-7])',
    re.I,
)
#: Seconds between two queries of libvirt: the first and the longest interval.
LOOK_INTERVALS = 0.02, 0.2


class MdevTag(enum.StrEnum):
    """The owner of the mdevs of an operation on a server: Nova or Cyborg."""

    COMPUTE = 'COMPUTE'
    ACCELERATOR = 'ACCELERATOR'


class Connection(Protocol):
    """The part of ``libvirt.virConnect`` that is used here."""

    def listDevices(self, cap: str, flags: int = 0) -> list[str]:
        """Names of the node devices with this capability."""


@dataclasses.dataclass(frozen=True)
class Hostdev:
    """One accelerator as libvirt attaches it: a PCI function or a mediated device."""

    #: address of the function that is passed through; None for a mediated device
    pci_address: str | None = None
    mdev_uuid: str | None = None
    #: whether libvirt unbinds the function from its host driver and binds it again. It must not
    #: if that driver itself attaches it: mediated devices and vendor-specific VFIO.
    is_managed: bool = False

    @classmethod
    def of(cls, accelerator: Mapping[str, object]) -> Self | None:
        """Returns the device for a request of Cyborg's REST API, or an entry of plug()'s result.

        Returns None if the accelerator is not attached to the guest: the handle has a type
        that libvirt does not know, such as TEST_PCI of the fake driver, or the entry has an
        ``attach_target``.

        :raises InvalidArgument: it has no handle, or one that cannot be parsed.

        >>> Hostdev.of({'pci_id': '0000:3b:00.4'})
        Hostdev(pci_address='0000:3b:00.4', mdev_uuid=None, is_managed=True)
        >>> Hostdev.of({'pci_id': '0000:3b:00.4', 'attach_target': 'host'}) is None
        True
        """
        if 'attach_handle_type' in accelerator:
            return cls._of_request(accelerator)
        if target := accelerator.get('attach_target'):
            LOG.info('%s is not attached: its target is %s', accelerator.get('pci_id'), target)
            return None
        asked_type = accelerator.get('asked_type')
        if accelerator.get('mdev_uuid'):
            return cls(mdev_uuid=_uuid(accelerator['mdev_uuid']))
        return cls(_address(accelerator.get('pci_id')), is_managed=not asked_type)

    @classmethod
    def _of_request(cls, arq: Mapping[str, object]) -> Self | None:
        kind, info = arq['attach_handle_type'], arq.get('attach_handle_info')
        if not kind or not isinstance(info, Mapping):
            raise errors.InvalidArgument(
                f'Request {arq.get("uuid")} has no handle to attach; its state is '
                f'{arq.get("state")}.'
            )
        match kind:
            case 'MDEV':
                return cls(mdev_uuid=_uuid(arq.get('attach_handle_uuid')))
            case 'PCI':
                return cls(_joined(info), is_managed=not info.get('asked_type'))
        LOG.info('Request %s: libvirt attaches nothing of type %s', arq.get('uuid'), kind)
        return None

    def to_xml(self) -> str:
        """Returns the ``<hostdev>`` element.

        >>> print(Hostdev('0000:3b:00.4', is_managed=True).to_xml())
        <hostdev mode="subsystem" type="pci" managed="yes">
          <source>
            <address domain="0x0000" bus="0x3b" slot="0x00" function="0x4" />
          </source>
        </hostdev>
        """
        element = ElementTree.Element('hostdev', mode='subsystem')
        element.set('type', 'pci' if self.mdev_uuid is None else 'mdev')
        element.set('managed', 'yes' if self.is_managed else 'no')
        source = ElementTree.SubElement(element, 'source')
        if self.mdev_uuid is not None:
            element.set('model', 'vfio-pci')
            ElementTree.SubElement(source, 'address', uuid=self.mdev_uuid)
        else:
            domain, bus, device, function = re.split('[:.]', self.pci_address or '')
            ElementTree.SubElement(
                source,
                'address',
                domain=f'0x{domain}',
                bus=f'0x{bus}',
                slot=f'0x{device}',
                function=f'0x{function}',
            )
        ElementTree.indent(element)
        return ElementTree.tostring(element, encoding='unicode')


def hostdevs(accelerators: Iterable[Mapping[str, object]]) -> list[Hostdev]:
    """Returns the devices for the domain of a server, in the order of its accelerators.

    :param accelerators: requests as Cyborg's REST API shows them, or the result of plug().
    :raises InvalidArgument: one has no handle yet, or one that cannot be parsed.

    >>> hostdevs([{'uuid': '7a3c…', 'state': 'Bound', 'attach_handle_type': 'PCI',
    ...            'attach_handle_info': {'domain': '0000', 'bus': '3b', 'device': '00',
    ...                                   'function': '4'}}])
    [Hostdev(pci_address='0000:3b:00.4', mdev_uuid=None, is_managed=True)]
    """
    found = (Hostdev.of(accelerator) for accelerator in accelerators)
    return [each for each in found if each is not None]


def from_xml(xml: str) -> list[Hostdev]:
    """Returns the PCI functions and mediated devices of a domain, or of one ``<hostdev>`` element.

    :raises InvalidArgument: it is not XML, or an address in it is not valid.

    >>> from_xml('<domain><devices/></domain>')
    []
    """
    try:
        root = ElementTree.fromstring(xml)
    except ElementTree.ParseError as error:
        raise errors.InvalidArgument(f'The definition is not XML: {error}.') from error
    found = (_of_element(element) for element in root.iter('hostdev'))
    return [each for each in found if each is not None]


def _of_element(element: ElementTree.Element) -> Hostdev | None:
    address = element.find('source/address')
    if address is None or element.get('mode') != 'subsystem':
        return None
    match element.get('type'):
        case 'mdev':
            return Hostdev(mdev_uuid=_uuid(address.get('uuid')))
        case 'pci':
            parts = {name: address.get('slot' if name == 'device' else name, '0') for name in PARTS}
            return Hostdev(_joined(parts), is_managed=element.get('managed') == 'yes')
    return None


def get_mdev_tag(accel_info: Iterable[Mapping[str, object]] | None) -> MdevTag:
    """Returns the owner of the mdevs of an operation on a server.

    :param accel_info: the server's requests as Cyborg's REST API shows them.

    >>> get_mdev_tag([]).value
    'COMPUTE'
    """
    for arq in accel_info or ():
        info = arq.get('attach_handle_info')
        if (
            arq.get('attach_handle_type') == 'MDEV'
            and arq.get('attach_handle_uuid')
            and isinstance(info, Mapping)
            and info.get('asked_type')
        ):
            return MdevTag.ACCELERATOR
    return MdevTag.COMPUTE


def merge_mdevs(compute: Iterable[str], accelerator: Iterable[str]) -> list[str]:
    """Returns the mdevs of both owners, each once, first those of Nova, in their order.

    >>> merge_mdevs([MDEV], [MDEV.upper()]) == [MDEV]
    True
    """
    return list(dict.fromkeys(_uuid(each) for each in (*compute, *accelerator)))


def node_device(mdev_uuid: str, parent: str) -> str:
    """Returns the name of a mediated device in libvirt, by which Nova finds it.

    :param parent: the PCI address of the function that it was made on.

    >>> node_device(MDEV, '0000:84:00.0')
    'mdev_91ac1606_427e_44bb_8233_f4ff4bf3d241_0000_84_00_0'
    """
    return re.sub('[-:.]', '_', f'mdev_{_uuid(mdev_uuid)}_{_address(parent)}')


def wait_for_node_device(connection: Connection, name: str, timeout: float) -> bool:
    """Wait until libvirt lists a mediated device; returns False if it does not in time.

    Nova would create a mediated device that libvirt does not list yet once more, and the
    server would fail to start. Old releases of libvirt leave the parent out of the name.

    :param connection: of libvirt's Python binding, from ``libvirt.open()``.

    >>> class Libvirt:
    ...     def listDevices(self, cap, flags=0):
    ...         return [node_device(MDEV, '0000:84:00.0')]
    >>> wait_for_node_device(Libvirt(), node_device(MDEV, '0000:84:00.0'), timeout=1)
    True
    """
    names = {name, name[: len('mdev_') + len(MDEV)]}
    return any(
        not names.isdisjoint(connection.listDevices('mdev', 0))
        for _ in polling.attempts(timeout, LOOK_INTERVALS)
    )


def _joined(info: Mapping[str, object]) -> str:
    """Returns the address in the format of sysfs, for parts such as ``3B`` or ``0x3b``."""
    parts = []
    for name, most in PARTS.items():
        value = str(info.get(name))
        try:
            number = int(value, 16)
        except ValueError:
            number = -1
        if not 0 <= number <= most:
            raise errors.InvalidArgument(f'{value!r} is not the {name} of a PCI address.')
        parts.append(number)
    return '{:04x}:{:02x}:{:02x}.{:x}'.format(*parts)


def _address(value: object) -> str:
    found = ADDRESS.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        raise errors.InvalidArgument(f'{value!r} is not a PCI address such as 0000:3b:00.4.')
    return _joined(found.groupdict())


def _uuid(value: object) -> str:
    try:
        return str(uuid.UUID(str(value)))
    except ValueError:
        raise errors.InvalidArgument(f'{value!r} is not the UUID of a mediated device.') from None
