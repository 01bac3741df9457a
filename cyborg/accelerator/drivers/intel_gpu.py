# SPDX-License-Identifier: Apache-2.0
"""Intel data centre GPUs, given out whole or by their virtual functions."""

from cyborg.accelerator import pci


def _model(product: str, *devices: str) -> pci.Model:
    return pci.Model(
        '8086',
        devices,
        f'Intel {product}',
        'PGPU',
        ('CUSTOM_INTEL_{device}',),
        classes=('03',),
        virtual_class='VGPU',
    )


class IntelGpuDriver(pci.Driver):
    name = 'intel_gpu_driver'
    type = 'GPU'
    options = (
        pci.resource_class_option('PGPU'),
        pci.virtual_resource_class_option('VGPU'),
        pci.WHOLE_CARDS,
    )
    catalogue = (
        _model('Flex 170', '56c0'),
        _model('Flex 140', '56c1'),
        _model('Flex 170V', '56c2'),
        _model('Data Center GPU Max', *(f'{number:04x}' for number in range(0x0BD4, 0x0BDC))),
        _model('Arc Pro B', 'e211', 'e212'),
    )
