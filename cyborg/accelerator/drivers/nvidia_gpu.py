# SPDX-License-Identifier: Apache-2.0
"""NVIDIA GPUs, given out whole or shared between guests (vGPU)."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence

from oslo_config import cfg

from cyborg import objects
from cyborg.accelerator import cleaning, mdev, pci, sharing, traits
from cyborg.accelerator.drivers import nvidia_types, nvidia_vfio
from cyborg.accelerator.sysfs import Sysfs

VENDOR = '10de'
TRAITS = ('CUSTOM_NVIDIA_{device}',)


def _model(product: str, *devices: str) -> pci.Model:
    return pci.Model(VENDOR, devices, f'NVIDIA {product}', 'PGPU', TRAITS, virtual_class='VGPU')


@dataclasses.dataclass(frozen=True)
class Offer:
    """The vGPUs of a type that a card offers."""

    title: str | None  #: None if the card does not show it
    room: sharing.Room[pci.Function]
    is_mediated: bool
    is_sliced: bool


class NvidiaGpuDriver(pci.Driver):
    """Reports one deployable for a card: the whole GPU, or as many vGPUs of a type as it holds."""

    name = 'nvidia_gpu_driver'
    type = 'GPU'
    subsystems = pci.SUBSYSTEMS + mdev.SUBSYSTEMS
    options = (
        pci.resource_class_option(
            'PGPU',
            help='Resource class of whole GPUs in Placement. For virtual GPUs see [gpu_devices] '
            'vgpu_resource_class.',
        ),
    )
    option_groups = {nvidia_types.GROUP: nvidia_types.OPTIONS}
    writes = mdev.WRITES + nvidia_vfio.WRITES
    runs = mdev.RUNS
    catalogue = (
        _model('P4', '1bb3'),
        _model('P40', '1b38'),
        _model('P100', '15f7', '15f8', '15f9'),
        _model('V100', '1db1', '1db4', '1db5', '1db6'),
        _model('T4', '1eb8'),
        _model('A100', '20b0', '20b1', '20b2', '20b5', '20f1'),
        _model('A30', '20b7'),
        _model('A40', '2235'),
        _model('A10', '2236'),
        _model('A16', '25b6'),
        _model('L40', '26b5'),
        _model('L40S', '26b9'),
        _model('L20', '26ba'),
        _model('L4', '27b8'),
        _model('H100', '2330', '2331'),
        _model('H200', '2335', '233b'),
        _model('B200', '2901'),
        _model('RTX PRO 6000', '2bb5'),
        # newer than this table, but a graphics card by its class code
        pci.Model(
            VENDOR,
            pci.ANY,
            'NVIDIA GPU',
            'PGPU',
            TRAITS,
            classes=('0300', '0302'),
            virtual_class='VGPU',
        ),
    )

    @classmethod
    def chosen_options(cls, conf: cfg.ConfigOpts) -> Mapping[str, Sequence[cfg.Opt]]:
        groups = nvidia_types.type_groups(conf).values()
        return dict.fromkeys(groups, nvidia_types.TYPE_OPTIONS)

    def __init__(self, conf: cfg.ConfigOpts, sysfs: Sysfs) -> None:
        super().__init__(conf, sysfs)
        self._choices = nvidia_types.choices(conf)
        #: (device id, type) -> name: a full card does not show the name of its type
        self._titles: dict[tuple[str, str], str] = {}

    def slice(self, gpu: pci.Function, model: pci.Model) -> Iterator[objects.Deployable]:
        choice = self._choices.get(gpu.address, self._choices.get(pci.ANY))
        if choice is None:
            yield self.deployable(gpu.address, model, [self._whole(gpu)])
            return
        offer = self._mediated(gpu, choice) or self._by_vendor(gpu, choice)
        if offer is None:
            raise pci.Unusable(self._explain(gpu, choice))
        make = self._mediated_handle if offer.is_mediated else self._vendor_handle
        handles = [make(parent, choice, number) for number, parent in offer.room.places.items()]
        for number, handle in zip(offer.room.places, handles, strict=True):
            handle.occupant = offer.room.occupants.get(number)
        yield self.deployable(
            gpu.address,
            model,
            handles,
            *_traits(gpu, offer),
            is_virtual=True,
            reserved=offer.room.reserved,
            occupants=list(offer.room.instances),
        )

    def attach(self, handle: objects.AttachHandle, task: objects.Task) -> None:
        kind = handle.info.get('asked_type')
        if handle.type == objects.HandleType.MDEV:
            mdev.create(self.function(handle), kind or '', handle.uuid)
        elif kind:
            nvidia_vfio.create(self.function(handle), kind, handle.info.get('gpu_instance_id'))

    def is_attached(self, handle: objects.AttachHandle) -> bool:
        if handle.type == objects.HandleType.MDEV:
            return mdev.exists(self.sysfs, handle.uuid)
        kind: str | None = handle.info.get('asked_type')
        return kind is None or nvidia_vfio.holds(self.function(handle)) in (None, kind)

    def detach(self, handle: objects.AttachHandle) -> None:
        kind = handle.info.get('asked_type')
        if handle.type == objects.HandleType.MDEV:
            mdev.remove(self.sysfs, handle.uuid)
        elif kind:
            nvidia_vfio.remove(self.function(handle), kind)

    def steps_for(self, handle: objects.AttachHandle) -> Sequence[cleaning.Step]:
        """Returns REMOVE also for a virtual function that is a vGPU: as a mediated device, it is
        made for one guest and removed after it."""
        return (cleaning.REMOVE,) if 'asked_type' in handle.info else super().steps_for(handle)

    def resource_class(self, model: pci.Model, is_virtual: bool = False) -> str:
        shared: str = self.conf.gpu_devices.vgpu_resource_class
        return shared if is_virtual else super().resource_class(model)

    def fault_if_changed(self, gpu: pci.Function) -> str | None:
        return None  # the options say whether a card is shared

    def _whole(self, gpu: pci.Function) -> objects.AttachHandle:
        if gpu.virtual_functions:
            raise pci.Unusable(
                f'{gpu.address} has virtual functions, so it cannot be given out whole: name a '
                'type for it in [gpu_devices] enabled_vgpu_types, or remove them with '
                f'sriov-manage -d {gpu.address}.'
            )
        if mdev.instances(gpu):
            raise pci.Unusable(
                f'{gpu.address} holds vGPUs, so it cannot be given out whole: remove them, or '
                'name their type in [gpu_devices] enabled_vgpu_types.'
            )
        return self.passthrough(gpu, 'pf')

    # -- as mediated devices ---------------------------------------------------------------

    def _mediated(self, gpu: pci.Function, choice: nvidia_types.Choice) -> Offer | None:
        """Returns the mediated devices on the card itself or, since Ampere, on its virtual
        functions, one on each."""
        kind = choice.directory
        if own := mdev.types(gpu).get(kind):
            room = mdev.room(gpu, kind, choice.ceiling(own.max_instances))
        else:
            parents = {
                number: vf
                for number, vf in gpu.virtual_functions.items()
                if vf.has(f'{mdev.TYPES}/{kind}')
            }
            if not parents:
                return None
            own = mdev.types(next(iter(parents.values()))).get(kind)
            room = mdev.spread(parents, kind, choice.ceiling(own.max_instances if own else None))
        title = own.title if own else None
        return Offer(title, room, True, nvidia_types.is_sliced(title))

    def _mediated_handle(
        self, parent: pci.Function, choice: nvidia_types.Choice, number: int
    ) -> objects.AttachHandle:
        mark = f'{choice.directory}_{number}'
        return objects.AttachHandle(
            key=mark,
            type=objects.HandleType.MDEV,
            is_host_prepared=True,
            info=parent.attach_info | {'asked_type': choice.directory, 'vgpu_mark': mark},
        )

    # -- by vendor-specific VFIO -----------------------------------------------------------

    def _by_vendor(self, gpu: pci.Function, choice: nvidia_types.Choice) -> Offer | None:
        kind, parents = choice.number, nvidia_vfio.parents(gpu)
        if not parents:
            return None
        if not self.conf.gpu_devices.offer_vendor_vfio:
            raise pci.Unusable(
                f'{gpu.address} shares itself by vendor-specific VFIO, and Nova cannot attach '
                'such a vGPU: set [gpu_devices] offer_vendor_vfio if what attaches it here can.'
            )
        for parent in parents.values():
            for number, title in nvidia_vfio.titles(parent).items():
                self._titles[gpu.device, number] = title
        known = self._titles.get((gpu.device, kind))
        is_held = any(nvidia_vfio.holds(parent) == kind for parent in parents.values())
        if known is None and not is_held:
            raise pci.Unusable(
                f'{gpu.address} lists no vGPU type {kind} that can be created on it; see '
                f'{nvidia_vfio.CREATABLE} of its virtual functions.'
            )
        is_sliced = bool(choice.gpu_instances) or nvidia_types.is_sliced(known)
        if is_sliced:
            # each GPU instance belongs to one virtual function
            parents = {
                number: parent
                for number, parent in parents.items()
                if number < len(choice.gpu_instances)
            }
        ceiling = self._ceiling(gpu, choice, known, is_sliced)
        return Offer(known, nvidia_vfio.room(parents, kind, ceiling), False, is_sliced)

    @staticmethod
    def _ceiling(
        gpu: pci.Function, choice: nvidia_types.Choice, title: str | None, is_sliced: bool
    ) -> int:
        """Returns how many vGPUs the card can hold, which sysfs does not show."""
        if is_sliced:
            most, option = len(choice.gpu_instances) or None, 'gpu_instance_ids'
        elif title:
            most, option = choice.ceiling(nvidia_types.most(title, gpu.device)), 'max_instances'
        else:
            return choice.max_instances or 0  # it is full, so it holds no more than now
        if most is None:
            raise pci.Unusable(
                f'{gpu.address} does not report how many vGPUs of type {choice.kind} it can hold: '
                f'set [vgpu_{choice.kind}] {option}.'
            )
        return most

    def _vendor_handle(
        self, parent: pci.Function, choice: nvidia_types.Choice, number: int
    ) -> objects.AttachHandle:
        instance = {'gpu_instance_id': choice.gpu_instances[number]} if choice.gpu_instances else {}
        handle = self.passthrough(parent, f'{choice.directory}_{number}')
        handle.is_host_prepared = True
        handle.info = handle.info | {'asked_type': choice.number} | instance
        return handle

    def _explain(self, gpu: pci.Function, choice: nvidia_types.Choice) -> str:
        if (gpu.number('sriov_totalvfs') or 0) and not gpu.virtual_functions:
            return (
                f'{gpu.address} has no virtual functions to hold vGPUs of type {choice.kind}: '
                f'make them with sriov-manage -e {gpu.address}.'
            )
        offered = {
            name for parent in (gpu, *gpu.virtual_functions.values()) for name in mdev.types(parent)
        }
        return (
            f'{gpu.address} offers no vGPUs of type {choice.kind}; it offers: '
            f'{", ".join(sorted(offered)) or "none, as the host driver for vGPU is missing"}.'
        )


def _traits(gpu: pci.Function, offer: Offer) -> Iterator[str]:
    if offer.title:
        yield traits.custom('NVIDIA', gpu.device, nvidia_types.short(offer.title))
    if offer.is_sliced:
        yield 'CUSTOM_MIG'
