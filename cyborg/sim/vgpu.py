# SPDX-License-Identifier: Apache-2.0
"""Simulated vGPUs without mediated devices: setting a type makes a virtual function a vGPU."""

import errno

from cyborg.sim.bus import Bus, Facts, Feature, Function
from cyborg.sim.tree import kernel_error

#: The id that a function without a GPU instance shows.
NO_INSTANCE = '4294967295'


class VendorVfio(Feature):
    """The vGPU types of a virtual function.

    A card holds vGPUs of one size, up to ``max_instance``. A vGPU of a type with ``instances``
    (MIG) uses one of these GPU instances, which must be chosen before.
    """

    key = 'vgpu'

    def __init__(self, bus: Bus) -> None:
        super().__init__(bus)
        self._held: dict[str, tuple[Function, str]] = {}
        self._chosen: dict[str, str] = {}
        self._parents: list[Function] = []
        self._shown: dict[str, str] = {}

    def check_driver(self, function: Function, driver: str) -> None:
        if driver == 'vfio-pci':  # the host driver itself passes it to guests
            raise kernel_error(errno.EINVAL)

    def bind(self, function: Function) -> None:
        self._parents.append(function)
        self._tree.file(
            f'{function.path}/nvidia/current_vgpu_type', '0', lambda text: self._set(function, text)
        )
        self._tree.file(
            f'{function.path}/nvidia/gpu_instance_id',
            NO_INSTANCE,
            lambda text: self._choose(function, text),
        )
        self._tree.file(f'{function.path}/nvidia/placement_id', NO_INSTANCE)
        self._tree.file(f'{function.path}/nvidia/vgpu_params', '')
        self._recount(function.card)

    def unbind(self, function: Function) -> None:
        self._parents.remove(function)
        self._held.pop(function.address, None)
        self._chosen.pop(function.address, None)
        self._shown.pop(function.address, None)
        self._tree.remove(f'{function.path}/nvidia')
        self._recount(function.card)

    def _on_card(self, card: Function) -> dict[str, str]:
        return {
            address: kind
            for address, (function, kind) in self._held.items()
            if function.card is card
        }

    def _kinds(self, function: Function) -> dict[str, Facts]:
        return {str(number): facts for number, facts in function.facts['vgpu']['types'].items()}

    def _creatable(self, function: Function) -> list[str]:
        if function.address in self._held:
            return []
        kinds, present = self._kinds(function), self._on_card(function.card)
        sizes = {kinds[kind]['framebuffer'] for kind in present.values()}
        return [
            kind
            for kind, facts in kinds.items()
            if (
                self._free_instances(function, kind)
                if 'instances' in facts
                else sizes <= {facts['framebuffer']} and len(present) < facts['max_instance']
            )
        ]

    def _free_instances(self, function: Function, kind: str) -> set[str]:
        used = {self._chosen.get(address) for address in self._on_card(function.card)}
        return set(map(str, self._kinds(function)[kind]['instances'])) - used

    def _recount(self, card: Function) -> None:
        for function in self._parents:
            if function.card is card:
                kinds = self._kinds(function)
                lines = ['ID : vGPU Name'] if function.facts['vgpu'].get('heading') else []
                lines += [f'{kind} : {kinds[kind]["name"]}' for kind in self._creatable(function)]
                if (text := '\n'.join(lines)) != self._shown.get(function.address):
                    self._shown[function.address] = text
                    self._tree.set_text(f'{function.path}/nvidia/creatable_vgpu_types', text)

    def _choose(self, function: Function, text: str) -> None:
        if not text.isdecimal():
            raise kernel_error(errno.EINVAL)
        if function.address in self._held:
            raise kernel_error(errno.EPERM)
        self._chosen[function.address] = text
        self._tree.set_text(f'{function.path}/nvidia/gpu_instance_id', text)

    def _set(self, function: Function, kind: str) -> None:
        if not kind.isdecimal():
            raise kernel_error(errno.EINVAL)
        if kind == '0':
            self._held.pop(function.address, None)
        elif function.address in self._held:
            raise kernel_error(errno.EBUSY)
        elif kind not in self._creatable(function):
            raise kernel_error(errno.EINVAL)
        elif 'instances' in self._kinds(function)[kind] and self._chosen.get(
            function.address
        ) not in self._free_instances(function, kind):
            raise kernel_error(errno.EIO)
        else:
            self._held[function.address] = function, kind
        self._tree.set_text(f'{function.path}/nvidia/current_vgpu_type', kind)
        self._recount(function.card)
