# SPDX-License-Identifier: Apache-2.0
"""Which PCI functions are passed through as they are."""

from oslo_config import cfg

GROUP = cfg.OptGroup('pci', title='Which PCI functions are passed through as they are')
OPTS = [
    cfg.MultiStrOpt(
        'passthrough_whitelist', default=[],
        help='Functions that pci_driver offers, as Nova lists them: a JSON object with any of '
             'vendor_id, product_id, address (with * for what does not matter, or an object of '
             'regular expressions), devname, physical_network, resource_class and traits, or a '
             'list of such objects. May be given several times. Example: '
             '{"vendor_id": "1b36", "product_id": "0010", "address": "0000:01:00.*"}'),
]
