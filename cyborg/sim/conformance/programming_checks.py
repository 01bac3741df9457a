# SPDX-License-Identifier: Apache-2.0
"""Checks of programming: it works, can be repeated, and a refused image changes nothing."""

import json
import tempfile
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path

from cyborg import errors, objects
from cyborg.accelerator import fpga_images, pci
from cyborg.accelerator.fpga_images import Kind
from cyborg.accelerator.sysfs import Sysfs
from cyborg.sim.conformance.intercepted_sysfs import checked_permissions
from cyborg.sim.conformance.testbed import CheckFailed, Checks, CheckSkipped, Testbed, comparable
from cyborg.sim.fpga import SYNC

FUNCTION = str(uuid.UUID('c0ffee00-1234-4678-9abc-def012345678'))
STRANGER = str(uuid.UUID('badbad00-1234-4678-9abc-def012345678'))


def _gbs(interface: str) -> bytes:
    description = json.dumps(
        {
            'version': 1,
            'afu-image': {
                'interface-uuid': interface,
                'accelerator-clusters': [{'accelerator-type-uuid': FUNCTION}],
            },
        }
    ).encode()
    return (
        fpga_images.GBS_MAGIC + len(description).to_bytes(4, 'little') + description + b'bits' * 100
    )


def _xclbin(interface: str) -> bytes:
    header = bytearray(fpga_images.XCLBIN_HEADER)
    header[:8] = fpga_images.XCLBIN_MAGIC
    header[fpga_images.XCLBIN_LENGTH : fpga_images.XCLBIN_LENGTH + 8] = (
        len(header) + 100
    ).to_bytes(8, 'little')
    for place, value in (
        (fpga_images.XCLBIN_INTERFACE, interface),
        (fpga_images.XCLBIN_UUID, FUNCTION),
    ):
        header[place : place + 16] = uuid.UUID(value).bytes
    return bytes(header) + b'b' * 100


#: How the simulator makes an image for a type of region, and whether it names its function.
MADE: Mapping[Kind, tuple[Callable[[str], bytes], bool]] = {
    Kind.GBS: (_gbs, True),
    Kind.XCLBIN: (_xclbin, True),
    Kind.RAW: (lambda interface: SYNC + b'bits' * 100, False),
}


def loads_images(testbed: Testbed) -> None:
    """A programmed region has the function of its image, also after the same image again."""
    for key, part in _programmable(testbed):
        kind = _fitting(testbed, part)
        first = comparable(testbed.discover()[key])
        if MADE[kind][1] and FUNCTION not in json.dumps(first):
            raise CheckFailed(
                f'{part.name} accepted an image of type {kind}, but discovery does not '
                f'show its function ({FUNCTION})'
            )
        _program(testbed, part, kind)
        if comparable(testbed.discover()[key]) != first:
            raise CheckFailed(f'{part.name} differs after the same image was loaded again')


def keeps_content_after_refusal(testbed: Testbed) -> None:
    """An image that is refused changes nothing, and the error names the region."""
    for key, part in _programmable(testbed):
        before = comparable(testbed.discover()[key])
        for content in (b'\x00\xffnoise' * 100, _gbs(STRANGER), _xclbin(STRANGER), b''):
            try:
                _load(testbed, part, content, {})
            except errors.DriverFailed as error:
                if part.name not in error.faultstring:
                    raise CheckFailed(f'"{error.faultstring}" does not name {part.name}') from error
            else:
                raise CheckFailed(f'{part.name} accepted an image that does not fit')
            if comparable(testbed.discover()[key]) != before:
                raise CheckFailed(f'{part.name} differs after an image was refused')


def declares_programming_tools(testbed: Testbed) -> None:
    """Programming runs only commands that the driver declares."""
    sysfs, undeclared = checked_permissions(testbed)
    for _, part in _programmable(testbed):
        _program(testbed, part, _fitting(testbed, part), sysfs)
    if undeclared:
        raise CheckFailed(f'it {undeclared[0]} without declaring it')


def refuses_regions_in_use(testbed: Testbed) -> None:
    """A region that a guest uses is not programmed."""
    for _, part in _programmable(testbed):
        kind = _fitting(testbed, part)
        addresses = list(filter(None, (pci.address_of(each.info) for each in part.attach_handles)))
        for address in addresses:
            testbed.host.bus.rebind(address, 'vfio-pci')
        try:
            _program(testbed, part, kind)
        except errors.DriverFailed:
            continue
        if addresses:
            raise CheckFailed(f'{part.name} was programmed while a guest used it')


def _programmable(testbed: Testbed) -> list[tuple[str, objects.Deployable]]:
    """Return one region per model: the driver treats the others alike."""
    if not testbed.host.cards:  # raises CheckSkipped on a real host
        raise CheckSkipped('the host has no card')
    found: dict[str | None, tuple[str, objects.Deployable]] = {}
    for device in testbed.discover().values():
        for part in device.deployables:
            if part.is_programmable and part.attach_handles:
                found.setdefault(device.model, (device.key, part))
    if not found:
        raise CheckSkipped('the driver has nothing that can be programmed')
    return list(found.values())


def _fitting(testbed: Testbed, part: objects.Deployable) -> Kind:
    """Load an image of the first type that is accepted, and return the type."""
    for kind in MADE:
        try:
            _program(testbed, part, kind)
        except errors.DriverFailed:
            continue
        return kind
    raise CheckSkipped(f'the simulator can make no image that {part.name} accepts')


def _program(
    testbed: Testbed, part: objects.Deployable, kind: Kind, sysfs: Sysfs | None = None
) -> None:
    _load(
        testbed,
        part,
        MADE[kind][0](_region_type(part)),
        {fpga_images.TYPE_PROPERTY: str(kind)},
        sysfs,
    )


def _load(
    testbed: Testbed,
    part: objects.Deployable,
    content: bytes,
    properties: Mapping[str, str],
    sysfs: Sysfs | None = None,
) -> None:
    with tempfile.NamedTemporaryFile(prefix='cyborg-sim-') as image:
        image.write(content)
        image.flush()
        testbed.driver(sysfs).program(part.name, Path(image.name), properties)


def _region_type(part: objects.Deployable) -> str:
    types = (each.value for each in part.attributes if each.key == 'region_type_uuid')
    return next(types, str(uuid.UUID(int=0)))


PROGRAMMING_CHECKS = Checks(
    loads_images,
    keeps_content_after_refusal,
    declares_programming_tools,
    refuses_regions_in_use,
    last=[refuses_regions_in_use],
)
