# SPDX-License-Identifier: Apache-2.0
"""NVMe disks of any maker."""

from cyborg.accelerator import nvme, pci


class NvmeDriver(nvme.Driver):
    name = 'nvme_driver'
    catalogue = (
        nvme.model('144d', 'Samsung'),
        nvme.model('1bd4', 'Inspur'),
        nvme.model('1cf2', 'ZTE'),
        pci.Model(
            pci.ANY,
            pci.ANY,
            'NVMe',
            'CUSTOM_SSD',
            ('CUSTOM_SSD_{vendor}', 'CUSTOM_SSD_PRODUCT_ID_{device}'),
            classes=(nvme.CLASS,),
        ),
    )
