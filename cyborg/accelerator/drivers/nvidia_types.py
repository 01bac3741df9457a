# SPDX-License-Identifier: Apache-2.0
"""NVIDIA's vGPU types: those that the operator chose for each card, and what their names mean."""

import dataclasses
import re

from oslo_config import cfg

from cyborg import errors
from cyborg.accelerator import pci

PREFIX = 'nvidia-'
#: A100-4C, T4-2B: the number is the memory in gigabytes. A100-1-5C: the first number is that of
#: the slices of a GPU instance.
NAME = re.compile(r'.+?(?P<slices>-\d{1,2})?-(?P<size>\d{1,4})[A-Z]+\d*')
#: Memory in gigabytes, as the names of types count them, of cards that do not show how many vGPUs
#: they can hold.
MEMORY = {
    '20b0': 40,
    '20b1': 40,
    '20b2': 80,
    '20b5': 80,
    '20f1': 40,
    '20b7': 24,
    '2235': 48,
    '2236': 24,
    '25b6': 16,
    '26b5': 48,
    '26b9': 48,
    '26ba': 48,
    '27b8': 24,
    '2330': 80,
    '2331': 80,
    '2335': 141,
    '233b': 141,
    '2bb5': 96,
}
GROUP = 'gpu_devices'
OPTIONS = (
    cfg.ListOpt(
        'enabled_vgpu_types',
        default=[],
        help='Types of virtual GPUs to offer. A type is named by its directory in sysfs '
        '(nvidia-35) or, for cards without mediated devices, by its number. If there is more than '
        'one, each needs a section [vgpu_<type>] whose device_addresses names the cards that '
        'offer it. Empty: cards are given out whole.',
    ),
    cfg.StrOpt(
        'vgpu_resource_class',
        default='VGPU',
        help='Resource class of virtual GPUs in Placement. Choose a CUSTOM_* name on hosts where '
        'Nova manages mediated devices too.',
    ),
    cfg.BoolOpt(
        'offer_vendor_vfio',
        default=False,
        help='Offer virtual GPUs of cards without mediated devices. On these cards the kernel '
        'driver of the host itself gives virtual functions to guests, and libvirt must not bind '
        'such a function to vfio-pci (managed="no"). Nova up to 34 always lets libvirt do that '
        '(managed="yes"), so its servers fail to start. Set this only if the program that '
        'attaches the functions does not.',
    ),
)
#: of each section [vgpu_<type>]
TYPE_OPTIONS = [
    cfg.ListOpt(
        'device_addresses', default=[], help='PCI addresses of the cards that offer this type.'
    ),
    cfg.IntOpt(
        'max_instances',
        min=1,
        help='The largest number of virtual GPUs of this type on one card. Unset: as many as the '
        'card can hold.',
    ),
    cfg.ListOpt(
        'gpu_instance_ids',
        default=[],
        help='For a type backed by MIG, on cards without mediated devices: the ids of the GPU '
        'instances that hold one virtual GPU each, as nvidia-smi mig -lgi shows them.',
    ),
]


@dataclasses.dataclass(frozen=True)
class Choice:
    """A type that the operator chose, with its options."""

    kind: str  #: nvidia-35, or 35
    max_instances: int | None
    gpu_instances: tuple[str, ...]

    @property
    def number(self) -> str:
        return self.kind.removeprefix(PREFIX)

    @property
    def directory(self) -> str:
        """Returns the name of the type's directory in sysfs, on cards with mediated devices."""
        return PREFIX + self.number

    def ceiling(self, most: int | None) -> int | None:
        """Returns how many a card may hold, if it can hold ``most``."""
        limits = [limit for limit in (self.max_instances, most) if limit is not None]
        return min(limits, default=None)


def short(title: str) -> str:
    """Returns T4-2B for GRID T4-2B."""
    return title.split()[-1]


def is_sliced(title: str | None) -> bool:
    """Returns whether a type is backed by a GPU instance (MIG)."""
    name = NAME.fullmatch(short(title)) if title else None
    return bool(name and name['slices'])


def most(title: str, device: str) -> int | None:
    """Returns how many vGPUs of a type a card can hold, by the name of the type; None if the name
    does not say."""
    name = NAME.fullmatch(short(title))
    if name is None or not int(name['size']) or device not in MEMORY:
        return None
    return MEMORY[device] // int(name['size'])


def type_groups(conf: cfg.ConfigOpts) -> dict[str, str]:
    """Returns the types that the operator has enabled, and the group of the options of each."""
    return {kind: f'vgpu_{kind}' for kind in conf.gpu_devices.enabled_vgpu_types}


def choices(conf: cfg.ConfigOpts) -> dict[str, Choice]:
    """Returns the type of each card, by address; pci.ANY if all cards have one type."""
    groups = type_groups(conf)
    chosen: dict[str, Choice] = {}
    for kind, group in groups.items():
        conf.register_opts(TYPE_OPTIONS, group=group)
        addresses = [each.lower() for each in conf[group].device_addresses]
        if not addresses and len(groups) > 1:
            raise errors.ConfigError(
                why=f'With more than one type in [gpu_devices] enabled_vgpu_types, [{group}] '
                'device_addresses must say which cards offer it.'
            )
        choice = Choice(kind, conf[group].max_instances, tuple(conf[group].gpu_instance_ids))
        if not all(each.isdecimal() for each in choice.gpu_instances):
            raise errors.ConfigError(why=f'[{group}] gpu_instance_ids are numbers.')
        for address in addresses or [pci.ANY]:
            if address != pci.ANY and not pci.ADDRESS.fullmatch(address):
                raise errors.ConfigError(
                    why=f'[{group}] device_addresses has {address}, which is not a PCI address '
                    'like 0000:3b:00.0.'
                )
            if chosen.setdefault(address, choice) != choice:
                raise errors.ConfigError(
                    why=f'{address} is in the device_addresses of both {chosen[address].kind} '
                    f'and {kind}; a card offers one type.'
                )
    return chosen
