# SPDX-License-Identifier: Apache-2.0
"""What a kernel does: the same functions judge the real one and the simulated one.

They need no test framework, so that they run in a guest that has little time. A machine has one
card whose virtual functions can be shared, and a slot for another card that is shared itself.
"""

import abc
import errno
import os
import stat
import time
import uuid
from collections.abc import Callable

from cyborg.accelerator import driver, mdev, pci
from cyborg.accelerator.sysfs import Node, Sysfs
from cyborg.agent.hotplug import UdevEvent

#: all that some driver listens to
SUBSYSTEMS = {subsystem for cls in driver.installed() for subsystem in cls.subsystems}
LONGEST = 60.0  #: seconds for anything to happen, on a machine that has other things to do
UUIDS = [str(uuid.UUID(int=0x91AC1606427E44BB8233F4FF4BF3D240 + n, version=4)) for n in range(20)]


class Machine(abc.ABC):
    """A host, real or not, with the means to watch it and to plug a card in."""

    #: the card with virtual functions, the driver that is bound to it and them
    card = '0000:af:00.0'
    driver = 'nvidia'
    #: types of mediated devices that its virtual functions offer, the second is the larger one
    kinds = ('nvidia-468', 'nvidia-471')
    #: where the other card comes to sit
    spare = '0000:3b:00.0'
    #: files are read and written by way of a kernel, which knows their modes
    has_modes = True
    #: seconds without an event after which a thread of the kernel has no more to tell
    quiet = 0.3
    _bridge: Node | None = None

    def __init__(self, sysfs: Sysfs) -> None:
        self.sysfs = sysfs
        self.heard: list[UdevEvent] = []

    @abc.abstractmethod
    def plug_in(self) -> None:
        """Have the spare card come."""

    @abc.abstractmethod
    def pull_out(self) -> None:
        """Have it go."""

    @property
    def pf(self) -> pci.Function:
        return pci.Function.at(self.sysfs, self.card)

    def answer(self, name: str, text: str) -> int | None:
        """Write, and answer with the error number, None if there was none."""
        try:
            self.sysfs.write(name, text)
        except OSError as error:
            return error.errno
        return None

    def events(self, act: Callable[[], object]) -> list[tuple[str, str, str]]:
        """What is told while something is done, and shortly after."""
        self._wait()
        self.heard.clear()
        act()
        self._wait()
        return [(each.action, each.subsystem, each.device) for each in self.heard]

    def _wait(self) -> None:
        count, deadline = -1, time.monotonic() + LONGEST
        while count != len(self.heard) and time.monotonic() < deadline:
            count = len(self.heard)
            self._hear_all()
            time.sleep(self.quiet)

    def _hear_all(self) -> None:
        """Events come in their order: what was told before one of our own has been heard, however
        late the thread that listens gets its turn."""
        if self._bridge is None:  # above the card, and there whatever happens to that
            self._bridge = Node(self.pf.path.resolve().parent, self.sysfs)
        mark = UdevEvent('change', 'pci', self._bridge.name)
        self._bridge.write('uevent', 'change')
        _until(lambda: mark in self.heard)
        self.heard.remove(mark)

    def reset(self) -> None:
        """As it was at first, whatever a law that does not hold has left behind."""
        for device in (self.sysfs / mdev.DEVICES).children():
            device.write('remove', '1')
        if self.pf.exists() and self.pf.number('sriov_numvfs'):
            self.pf.write('sriov_numvfs', '0')
        if self.pf.driver != self.driver:
            bind(self, self.card, self.driver)
        self.pf.write('driver_override', '\n')
        self.pf.write('sriov_drivers_autoprobe', '1')
        if pci.Function.at(self.sysfs, self.spare).exists():
            self.pull_out()


def expect(actual: object, expected: object) -> None:
    if actual != expected:
        raise AssertionError(f'{actual!r} is not {expected!r}')


def bind(machine: Machine, address: str, driver: str) -> None:
    """Give a function to a driver, as libvirt does it."""
    function = pci.Function.at(machine.sysfs, address)
    function.write('driver_override', driver)
    if function.driver:
        (function / 'driver').write('unbind', address)
    machine.sysfs.write('bus/pci/drivers_probe', address)


# -- a function and its attributes ---------------------------------------------------------


def attributes_are_spelled_like_this(machine: Machine) -> None:
    pf = machine.pf
    for name, digits in (
        ('vendor', 4),
        ('device', 4),
        ('subsystem_vendor', 4),
        ('subsystem_device', 4),
        ('class', 6),
        ('revision', 2),
    ):
        text = (pf.path / name).read_text()
        expect((len(text), text[:2], text[-1]), (2 + digits + 1, '0x', '\n'))
        expect(text, text.lower())
    expect(pf.read('driver_override'), '(null)')
    expect(pf.link('subsystem').path, machine.sysfs.path.resolve() / 'bus/pci')
    expect(len((pf.path / 'config').read_bytes()) in (256, 4096), True)
    expect(
        (pf.path / 'config').read_bytes()[:4],
        bytes.fromhex(pf.vendor)[::-1] + bytes.fromhex(pf.device)[::-1],
    )


def uevent_says_this(machine: Machine) -> None:
    pf = machine.pf
    lines = dict(line.split('=', 1) for line in pf.read('uevent').splitlines())
    expect(
        list(lines), ['DRIVER', 'PCI_CLASS', 'PCI_ID', 'PCI_SUBSYS_ID', 'PCI_SLOT_NAME', 'MODALIAS']
    )
    expect(lines['PCI_ID'], f'{pf.vendor}:{pf.device}'.upper())
    expect(lines['PCI_CLASS'], pf.class_code.lstrip('0').upper())
    expect(lines['DRIVER'], machine.driver)
    expect(lines['MODALIAS'], pf.read('modalias'))


def links_lead_to_the_same_places(machine: Machine) -> None:
    root = machine.sysfs.path.resolve()
    place = machine.pf.path.resolve()
    expect(place.is_relative_to(root / 'devices'), True)
    expect(pci.ADDRESS.fullmatch(place.parent.name) is not None, True)  # the bridge above it
    expect(machine.pf.link('driver').path, root / 'bus/pci/drivers' / machine.driver)
    group = machine.pf.link('iommu_group').path
    expect(group.parent, root / 'kernel/iommu_groups')
    expect((group / 'devices' / machine.card).resolve(), place)
    expect((root / 'bus/pci/drivers' / machine.driver / machine.card).resolve(), place)


def modes_are_these(machine: Machine) -> None:
    machine.pf.write('sriov_numvfs', '1')
    part = machine.pf.virtual_functions[0]
    kind = f'mdev_supported_types/{machine.kinds[0]}'
    (part / kind).write('create', UUIDS[0])
    for node, name, mode in (
        (machine.pf, 'vendor', 0o444),
        (machine.pf, 'uevent', 0o644),
        (machine.pf, 'driver_override', 0o644),
        (machine.pf, 'remove', 0o220),
        (machine.pf, 'reset', 0o200),
        (part, 'reset', 0o200),
        (machine.pf, 'sriov_numvfs', 0o644),
        (machine.pf, 'sriov_totalvfs', 0o444),
        (machine.pf, 'sriov_vf_total_msix', 0o444),
        (part, 'sriov_vf_msix_count', 0o200),
        (machine.pf, 'driver/unbind', 0o200),
        (machine.pf, 'driver/bind', 0o200),
        (machine.sysfs, 'bus/pci/drivers_probe', 0o200),
        (machine.sysfs, 'bus/pci/rescan', 0o200),
        (part, f'{kind}/create', 0o200),
        (part, f'{kind}/available_instances', 0o444),
        (machine.sysfs, f'{mdev.DEVICES}/{UUIDS[0]}/remove', 0o200),
    ):
        expect((name, oct(stat.S_IMODE((node.path / name).stat().st_mode))), (name, oct(mode)))


def a_function_is_reset_by_a_one(machine: Machine) -> None:
    machine.pf.write('sriov_numvfs', '1')
    part = machine.pf.virtual_functions[0]
    # its ids are told by the physical function
    expect((part.path / 'config').read_bytes()[:4], b'\xff' * 4)
    expect((part.path / 'config').read_bytes()[4:8] == b'\xff' * 4, False)
    (part / 'driver').write('unbind', part.address)
    reset = f'{pci.DEVICES}/{part.address}/reset'
    for text in ('0', '2', 'x'):
        expect(machine.answer(reset, text), errno.EINVAL)
    expect(machine.events(lambda: machine.sysfs.write(reset, '1')), [])
    expect((part.path / 'config').read_bytes()[4:8] == b'\xff' * 4, False)
    expect(part.driver, None)


def not_even_root_reads_or_writes_against_the_mode(machine: Machine) -> None:
    if not machine.has_modes:
        return
    expect(machine.answer(f'{pci.DEVICES}/{machine.card}/vendor', '1'), errno.EACCES)
    try:
        (machine.sysfs.path / 'bus/pci/drivers_probe').read_bytes()
    except OSError as error:
        expect(error.errno, errno.EACCES)
    else:
        raise AssertionError('a file that can only be written was read')


def nothing_is_written_where_nothing_is(machine: Machine) -> None:
    expect(machine.answer(f'{pci.DEVICES}/{machine.card}/absent', '1'), errno.ENOENT)
    expect(machine.answer(f'{pci.DEVICES}/ffff:ff:1f.7/remove', '1'), errno.ENOENT)
    expect(machine.answer(f'{pci.DEVICES}/{machine.card}/power', '1'), errno.EISDIR)


def an_event_can_be_asked_for(machine: Machine) -> None:
    name = f'{pci.DEVICES}/{machine.card}/uevent'
    expect(machine.events(lambda: machine.sysfs.write(name, 'add')), [('add', 'pci', machine.card)])
    expect(machine.answer(name, 'nonsense'), errno.EINVAL)
    expect(machine.answer(name, 'change\n'), None)


# -- virtual functions ---------------------------------------------------------------------


def a_number_of_virtual_functions_is_a_number(machine: Machine) -> None:
    total = machine.pf.number('sriov_totalvfs')
    for text, number in (
        ('four', errno.EINVAL),
        ('-1', errno.EINVAL),
        ('65536', errno.EINVAL),
        ('\n', errno.EINVAL),
        (str(total + 1), errno.ERANGE),
        ('0x1', None),
        ('0\n', None),
        ('0', None),
        ('', None),
    ):
        expect(
            (text, machine.answer(f'{pci.DEVICES}/{machine.card}/sriov_numvfs', text)),
            (text, number),
        )


def virtual_functions_are_there_when_the_write_returns(machine: Machine) -> None:
    pf = machine.pf
    pf.write('sriov_numvfs', '3')
    parts = pf.virtual_functions
    expect(list(parts), [0, 1, 2])
    for part in parts.values():
        expect(part.link('physfn').name, machine.card)
        expect(part.driver, machine.driver)
        expect(part.has('sriov_totalvfs'), False)
        expect(part.vendor, pf.vendor)
    expect(f'{int(parts[0].device, 16):x}', pf.read('sriov_vf_device'))
    expect(pf.read('sriov_numvfs'), '3')
    groups = {each.iommu_group for each in (pf, *parts.values())}
    expect((len(groups), None in groups), (4, False))


def interrupts_are_counted_by_drivers_that_can(machine: Machine) -> None:
    machine.pf.write('sriov_numvfs', '1')
    part = machine.pf.virtual_functions[0].address
    expect(machine.pf.read('sriov_vf_total_msix'), '0')
    for text, number in (('many', errno.EINVAL), ('-1', errno.EINVAL), ('4', errno.EOPNOTSUPP)):
        expect(
            (text, machine.answer(f'{pci.DEVICES}/{part}/sriov_vf_msix_count', text)),
            (text, number),
        )


def virtual_functions_have_the_addresses_that_are_told(machine: Machine) -> None:
    pf = machine.pf
    pf.write('sriov_numvfs', '3')
    offset, stride = pf.number('sriov_offset'), pf.number('sriov_stride')
    expect(
        [_route(part.address) - _route(machine.card) for part in pf.virtual_functions.values()],
        [offset + number * stride for number in range(3)],
    )


def _route(address: str) -> int:
    _, bus, rest = address.split(':')
    device, function = rest.split('.')
    return (int(bus, 16) << 8) + (int(device, 16) << 3) + int(function)


def from_some_to_others_leads_through_none(machine: Machine) -> None:
    name = f'{pci.DEVICES}/{machine.card}/sriov_numvfs'
    for text, number in (
        ('2', None),
        ('2', None),
        ('3', errno.EBUSY),
        ('1', errno.EBUSY),
        ('0', None),
        ('3', None),
        ('0', None),
    ):
        expect((text, machine.answer(name, text)), (text, number))
    expect(machine.pf.virtual_functions, {})


def only_a_driver_makes_virtual_functions(machine: Machine) -> None:
    name = f'{pci.DEVICES}/{machine.card}/sriov_numvfs'
    (machine.pf / 'driver').write('unbind', machine.card)
    expect(machine.answer(name, '1'), errno.ENOENT)
    expect(machine.answer(name, '0'), None)  # as many as there are


def virtual_functions_go_with_the_driver(machine: Machine) -> None:
    machine.pf.write('sriov_numvfs', '2')
    places = [part.path for part in machine.pf.virtual_functions.values()]
    (machine.pf / 'driver').write('unbind', machine.card)
    expect([os.path.lexists(each) for each in places], [False, False])
    expect(machine.pf.number('sriov_numvfs'), 0)


def virtual_functions_may_stay_without_a_driver(machine: Machine) -> None:
    name = f'{pci.DEVICES}/{machine.card}/sriov_drivers_autoprobe'
    for text, number in (('2', errno.EINVAL), ('x', errno.EINVAL), ('0', None)):
        expect((text, machine.answer(name, text)), (text, number))
    machine.pf.write('sriov_numvfs', '1')
    part = machine.pf.virtual_functions[0]
    expect((part.driver, 'DRIVER' in part.read('uevent')), (None, False))
    machine.sysfs.write('bus/pci/drivers_probe', part.address)
    expect(part.driver, None)
    part.write('driver_override', 'vfio-pci')
    machine.sysfs.write('bus/pci/drivers_probe', part.address)
    expect(part.driver, 'vfio-pci')


def virtual_functions_are_told_in_this_order(machine: Machine) -> None:
    told = machine.events(lambda: machine.pf.write('sriov_numvfs', '2'))
    first, second = (part.address for part in machine.pf.virtual_functions.values())
    # of each: it comes, it is a virtual one, its driver offers types, its driver has it
    for address in (first, second):
        expect(
            [action for action, subsystem, device in told if device == address],
            ['add', 'change', 'change', 'bind'],
        )
    expect(told[-1], ('change', 'pci', machine.card))
    expect(len(told), 9)
    told = machine.events(lambda: machine.pf.write('sriov_numvfs', '0'))
    expect(
        told,
        [
            (action, 'pci', address)
            for address in (first, second)
            for action in ('change', 'unbind', 'remove')
        ],
    )


# -- binding -------------------------------------------------------------------------------


def a_function_goes_to_vfio_and_back(machine: Machine) -> None:
    machine.pf.write('sriov_numvfs', '1')
    part = machine.pf.virtual_functions[0]
    bind(machine, part.address, 'vfio-pci')
    expect((part.driver, part.read('driver_override')), ('vfio-pci', 'vfio-pci'))
    expect(part.has('mdev_supported_types'), False)
    part.write('driver_override', '\n')
    expect(part.read('driver_override'), '(null)')
    (part / 'driver').write('unbind', part.address)
    machine.sysfs.write(f'bus/pci/drivers/{machine.driver}/bind', part.address)
    expect(part.driver, machine.driver)
    expect(part.has('mdev_supported_types'), True)


def binding_that_makes_no_sense_is_refused(machine: Machine) -> None:
    own, card = f'bus/pci/drivers/{machine.driver}', machine.card
    for name, text, number in (
        ('bus/pci/drivers_probe', 'ffff:ff:1f.7', errno.ENODEV),
        ('bus/pci/drivers_probe', card, None),  # bound already
        (f'{own}/bind', 'ffff:ff:1f.7', errno.ENODEV),
        (f'{own}/bind', card, errno.EBUSY),
        ('bus/pci/drivers/vfio-pci/bind', card, errno.ENODEV),
        ('bus/pci/drivers/vfio-pci/unbind', card, errno.ENODEV),
        (f'{own}/unbind', 'ffff:ff:1f.7', errno.ENODEV),
    ):
        expect((name, text, machine.answer(name, text)), (name, text, number))


def binding_is_told(machine: Machine) -> None:
    driver = machine.pf / 'driver'
    expect(
        machine.events(lambda: driver.write('unbind', machine.card)),
        [('unbind', 'pci', machine.card)],
    )
    expect(
        machine.events(lambda: machine.sysfs.write('bus/pci/drivers_probe', machine.card)),
        [('bind', 'pci', machine.card)],
    )


def a_removed_card_comes_back_with_a_rescan(machine: Machine) -> None:
    name = f'{pci.DEVICES}/{machine.card}'
    expect(machine.answer(f'{name}/remove', 'x'), errno.EINVAL)
    expect(machine.answer(f'{name}/remove', '0'), None)
    expect(machine.pf.exists(), True)
    told = machine.events(lambda: machine.sysfs.write(f'{name}/remove', '1'))
    expect(told, [('unbind', 'pci', machine.card), ('remove', 'pci', machine.card)])
    expect(machine.pf.exists(), False)
    expect(machine.answer('bus/pci/rescan', 'x'), errno.EINVAL)
    told = machine.events(lambda: machine.sysfs.write('bus/pci/rescan', '1'))
    expect(
        [each for each in told if each[2] == machine.card],
        [('add', 'pci', machine.card), ('bind', 'pci', machine.card)],
    )
    expect(machine.pf.driver, machine.driver)


def virtual_functions_do_not_come_back_with_a_rescan(machine: Machine) -> None:
    machine.pf.write('sriov_numvfs', '2')
    machine.pf.write('remove', '1')
    machine.sysfs.write('bus/pci/rescan', '1')
    expect((machine.pf.number('sriov_numvfs'), machine.pf.virtual_functions), (0, {}))


# -- mediated devices ----------------------------------------------------------------------


def _parents(machine: Machine, count: int = 3) -> list[pci.Function]:
    machine.pf.write('sriov_numvfs', str(count))
    return list(machine.pf.virtual_functions.values())


def _create(parent: pci.Function, kind: str) -> str:
    return f'{pci.DEVICES}/{parent.address}/mdev_supported_types/{kind}/create'


def types_sit_on_virtual_functions(machine: Machine) -> None:
    part = _parents(machine)[0]
    expect(machine.pf.has('mdev_supported_types'), False)
    kinds = mdev.types(part)
    expect(set(machine.kinds) <= set(kinds), True)
    for kind in (kinds[name] for name in machine.kinds):
        expect(kind.read('device_api'), 'vfio-pci')
        expect((kind.available, kind.instances), (1, []))
        expect(bool(kind.title) and bool(kind.max_instances), True)
    link = machine.sysfs / 'class/mdev_bus' / part.address
    expect(link.path.resolve(), part.path.resolve())


def a_uuid_is_a_uuid(machine: Machine) -> None:
    part = _parents(machine)[0]
    short, spread = UUIDS[0][:35], UUIDS[0].replace('-', '') + '----'
    for text, number in (
        ('junk', errno.EINVAL),
        (short, errno.EINVAL),
        (spread, errno.EINVAL),
        (f'{UUIDS[0]}xx', errno.EINVAL),
        (f'{UUIDS[0]}\n', None),
    ):
        expect((text, machine.answer(_create(part, machine.kinds[0]), text)), (text, number))
    for text in (UUIDS[0].upper(), f'{UUIDS[0]}x'):  # only so many characters count
        machine.sysfs.write(f'{mdev.DEVICES}/{UUIDS[0]}/remove', '1')
        expect(machine.answer(_create(part, machine.kinds[0]), text), None)
        expect(machine.sysfs.has(f'{mdev.DEVICES}/{UUIDS[0]}'), True)


def a_mediated_device_is_there_when_the_write_returns(machine: Machine) -> None:
    part, kind = _parents(machine)[0], machine.kinds[0]
    machine.sysfs.write(_create(part, kind), UUIDS[0])
    device = machine.sysfs / mdev.DEVICES / UUIDS[0]
    place = part.path.resolve() / UUIDS[0]
    expect(device.path.resolve(), place)
    types = part.path.resolve() / 'mdev_supported_types'
    expect(device.link('mdev_type').path, types / kind)
    expect(device.link('subsystem').path, machine.sysfs.path.resolve() / 'bus/mdev')
    expect((types / kind / 'devices' / UUIDS[0]).resolve(), place)
    group = device.link('iommu_group').path
    expect(group.parent, machine.sysfs.path.resolve() / 'kernel/iommu_groups')
    expect((group / 'devices' / UUIDS[0]).resolve(), place)
    expect(mdev.types(part)[kind].available, 0)


def a_uuid_is_taken_on_the_whole_host(machine: Machine) -> None:
    first, second, *_ = _parents(machine)
    machine.sysfs.write(_create(first, machine.kinds[0]), UUIDS[0])
    for parent in (first, second):
        expect(machine.answer(_create(parent, machine.kinds[0]), UUIDS[0]), errno.EEXIST)


def a_card_has_room_for_so_many(machine: Machine) -> None:
    parts, kind = _parents(machine), machine.kinds[1]
    room = mdev.types(parts[0])[kind].max_instances
    expect(room < len(parts), True)
    for number in range(room):
        machine.sysfs.write(_create(parts[number], kind), UUIDS[number])
    expect([mdev.types(part)[kind].available for part in parts], [0] * len(parts))
    expect(machine.answer(_create(parts[room], kind), UUIDS[room]), errno.ENOSPC)
    expect(machine.sysfs.has(f'{mdev.DEVICES}/{UUIDS[room]}'), False)
    machine.sysfs.write(f'{mdev.DEVICES}/{UUIDS[0]}/remove', '1')
    expect(machine.answer(_create(parts[room], kind), UUIDS[room]), None)


def a_card_holds_one_type_at_a_time(machine: Machine) -> None:
    first, second, *_ = _parents(machine)
    machine.sysfs.write(_create(first, machine.kinds[0]), UUIDS[0])
    expect(mdev.types(second)[machine.kinds[0]].available, 1)
    expect(mdev.types(second)[machine.kinds[1]].available, 0)
    expect(machine.answer(_create(second, machine.kinds[1]), UUIDS[1]), errno.ENOSPC)


def mediated_devices_are_removed_by_a_number(machine: Machine) -> None:
    part = _parents(machine)[0]
    machine.sysfs.write(_create(part, machine.kinds[0]), UUIDS[0])
    name = f'{mdev.DEVICES}/{UUIDS[0]}/remove'
    for text, number in (('x', errno.EINVAL), ('0', None), ('7', None), ('1', errno.ENOENT)):
        expect((text, machine.answer(name, text)), (text, number))


def mediated_devices_are_told_in_this_order(machine: Machine) -> None:
    parts, kind = _parents(machine), machine.kinds[1]
    create = _create(parts[0], kind)
    expect(
        machine.events(lambda: machine.sysfs.write(create, UUIDS[0])),
        [('add', 'mdev', UUIDS[0]), ('bind', 'mdev', UUIDS[0])],
    )
    # one that could not be made is told as if it had come and gone
    expect(
        machine.events(lambda: machine.answer(create, UUIDS[1])),
        [('add', 'mdev', UUIDS[1]), ('remove', 'mdev', UUIDS[1])],
    )
    name = f'{mdev.DEVICES}/{UUIDS[0]}/remove'
    expect(
        machine.events(lambda: machine.sysfs.write(name, '1')),
        [('unbind', 'mdev', UUIDS[0]), ('remove', 'mdev', UUIDS[0])],
    )


def mediated_devices_go_with_what_they_sit_on(machine: Machine) -> None:
    part = _parents(machine, 1)[0]
    machine.sysfs.write(_create(part, machine.kinds[0]), UUIDS[0])
    machine.pf.write('sriov_numvfs', '0')
    expect(machine.sysfs.has(f'{mdev.DEVICES}/{UUIDS[0]}'), False)
    part = _parents(machine, 1)[0]
    machine.sysfs.write(_create(part, machine.kinds[0]), UUIDS[0])
    (part / 'driver').write('unbind', part.address)
    expect(machine.sysfs.has(f'{mdev.DEVICES}/{UUIDS[0]}'), False)
    expect(part.has('mdev_supported_types'), False)
    expect(machine.sysfs.has(f'class/mdev_bus/{part.address}'), False)


# -- cards that come and go ----------------------------------------------------------------


def a_card_that_comes_is_told(machine: Machine) -> None:
    card = pci.Function.at(machine.sysfs, machine.spare)
    told = machine.events(lambda: (machine.plug_in(), _until(lambda: card.driver is not None)))
    expect(
        [each for each in told if each[2] == machine.spare],
        [
            ('add', 'pci', machine.spare),
            ('change', 'pci', machine.spare),
            ('bind', 'pci', machine.spare),
        ],
    )
    expect(set(machine.kinds) <= set(mdev.types(card)), True)
    told = machine.events(lambda: (machine.pull_out(), _until(lambda: not card.exists())))
    expect(
        [each for each in told if each[2] == machine.spare],
        [
            ('change', 'pci', machine.spare),
            ('unbind', 'pci', machine.spare),
            ('remove', 'pci', machine.spare),
        ],
    )


def _until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LONGEST
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError('it did not happen')
        time.sleep(0.05)


def what_is_shared_goes_with_its_card(machine: Machine) -> None:
    card = pci.Function.at(machine.sysfs, machine.spare)
    machine.plug_in()
    _until(lambda: bool(mdev.types(card)))
    machine.sysfs.write(_create(card, machine.kinds[0]), UUIDS[0])
    machine.pull_out()
    _until(lambda: not card.exists())
    expect(machine.sysfs.has(f'{mdev.DEVICES}/{UUIDS[0]}'), False)


LAWS: tuple[Callable[[Machine], None], ...] = (
    attributes_are_spelled_like_this,
    uevent_says_this,
    links_lead_to_the_same_places,
    modes_are_these,
    a_function_is_reset_by_a_one,
    not_even_root_reads_or_writes_against_the_mode,
    nothing_is_written_where_nothing_is,
    an_event_can_be_asked_for,
    a_number_of_virtual_functions_is_a_number,
    virtual_functions_are_there_when_the_write_returns,
    interrupts_are_counted_by_drivers_that_can,
    virtual_functions_have_the_addresses_that_are_told,
    from_some_to_others_leads_through_none,
    only_a_driver_makes_virtual_functions,
    virtual_functions_go_with_the_driver,
    virtual_functions_may_stay_without_a_driver,
    virtual_functions_are_told_in_this_order,
    a_function_goes_to_vfio_and_back,
    binding_that_makes_no_sense_is_refused,
    binding_is_told,
    a_removed_card_comes_back_with_a_rescan,
    virtual_functions_do_not_come_back_with_a_rescan,
    types_sit_on_virtual_functions,
    a_uuid_is_a_uuid,
    a_mediated_device_is_there_when_the_write_returns,
    a_uuid_is_taken_on_the_whole_host,
    a_card_has_room_for_so_many,
    a_card_holds_one_type_at_a_time,
    mediated_devices_are_removed_by_a_number,
    mediated_devices_are_told_in_this_order,
    mediated_devices_go_with_what_they_sit_on,
    a_card_that_comes_is_told,
    what_is_shared_goes_with_its_card,
)


def judge(machine: Machine, law: Callable[[Machine], None]) -> str | None:
    """What does not hold; None if all does."""
    try:
        machine.reset()
        law(machine)
    except AssertionError as error:
        return str(error)
    except Exception as error:
        return repr(error)
    return None
