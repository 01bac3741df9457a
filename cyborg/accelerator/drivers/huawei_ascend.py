# SPDX-License-Identifier: Apache-2.0
"""Huawei Ascend processors for neural networks, given out whole."""

from cyborg.accelerator import pci


def _model(product: str, device: str) -> pci.Model:
    # the class code counts, too: the vendor id is also that of network cards and disks
    return pci.Model(
        '19e5',
        device,
        f'Huawei Ascend {product}',
        'CUSTOM_NPU',
        ('CUSTOM_ASCEND_{device}',),
        classes=('1200',),
    )


class HuaweiAscendDriver(pci.Driver):
    name = 'huawei_ascend_driver'
    type = 'AICHIP'
    options = (pci.resource_class_option('CUSTOM_NPU'),)
    catalogue = (
        _model('310', 'd100'),
        _model('310P', 'd500'),
        _model('910', 'd801'),
        _model('910B', 'd802'),
        _model('910C', 'd803'),
    )
