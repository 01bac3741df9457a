# SPDX-License-Identifier: Apache-2.0
"""How graphics cards are shared."""

from oslo_config import cfg

GROUP = cfg.OptGroup('gpu_devices', title='How graphics cards are shared')
OPTS = [
    cfg.ListOpt(
        'enabled_vgpu_types', default=[],
        help='Virtual GPU types to offer, by their directory name in sysfs (nvidia-35) or, for '
             'cards without mediated devices, by their number. With more than one, each needs '
             'a section [vgpu_<type>] whose device_addresses says which cards have it. Empty: '
             'cards are given out whole.'),
    cfg.StrOpt('vgpu_resource_class', default='VGPU',
               help='Resource class of virtual GPUs. Choose a CUSTOM_* name on hosts where Nova '
                    'manages mediated devices too.'),
    cfg.BoolOpt('offer_vendor_vfio', default=False,
                help='Offer vGPUs of cards without mediated devices, whose virtual functions the '
                     'host driver itself hands to guests. libvirt must not bind such a function '
                     'to vfio-pci (managed="no"). Nova up to 34 always lets it (managed="yes"), '
                     'and its servers fail to start: set this only if what attaches them here '
                     'does not.'),
]
