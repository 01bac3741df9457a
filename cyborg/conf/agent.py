# SPDX-License-Identifier: Apache-2.0
"""What runs on each compute host."""

from oslo_config import cfg

GROUP = cfg.OptGroup('agent', title='What runs on each compute host')
OPTS = [
    cfg.ListOpt('enabled_drivers', default=[], sample_default='nvidia_gpu_driver',
                help='Drivers that look for devices on this host. Unset: none, so that nothing '
                     'is offered.'),
    cfg.StrOpt(
        'resource_provider_name', sample_default='<fqdn>',
        help='Name of the compute node in Placement, which is what Nova calls the node. The '
             'agent also listens for messages under this name. Unset: what '
             'libvirt calls this host, which is its fully qualified name if it has one.'),
    cfg.IntOpt(
        'resync_interval', default=60, min=1,
        help='Seconds between two full looks at the host when no udev event wakes the agent, '
             'and between two heartbeats, which wait for nothing.'),
    cfg.IntOpt(
        'placement_interval', default=600, min=0,
        help='Seconds after which the resource providers in Placement are looked at although '
             'nothing changed on the host: others may have claimed or deleted some. A device '
             'that is claimed is looked after at every look at the host. 0: never.'),
    cfg.FloatOpt(
        'settle_time', default=0.1, min=0,
        help='Seconds without a further udev event after which a burst of them counts as over '
             'and the host is looked at, once.'),
    cfg.IntOpt('driver_timeout', default=60, min=1,
               help='Seconds after which a call into a driver counts as hung, and a tool that '
                    'it runs is killed.'),
    cfg.IntOpt('program_timeout', default=600, min=1,
               help='The same for loading an image into a device, or into its flash.'),
    cfg.IntOpt('work_threads', default=8, min=1,
               help='How many devices are prepared, cleaned or programmed at a time. On one '
                    'device one thing is done after another.'),
    cfg.IntOpt('max_bitstream_size', default=1024, min=1,
               help='The most MiB that an image may have which is loaded into a device.'),
    cfg.IntOpt('bitstream_cache_size', default=0, min=0,
               help='MiB of images that are kept in state_path after they were loaded, so that '
                    'they are not fetched again; the least recently used ones are removed '
                    'first. Glance is asked at every use whether an image may still be used. 0: '
                    'none are kept.'),
    cfg.ListOpt('allowed_bitstream_digests', default=[], sample_default='sha256:<digest>',
                help='Digests of the images that may be loaded on this host, each with its '
                     'algorithm: sha256, sha384 or sha512. Unset: all images may that a project '
                     'can see and that fit the device.'),
    cfg.BoolOpt('verify_bitstream_signatures', default=False,
                help='Load only images that are signed, as Nova does for its images. Needs the '
                     'extra "signatures" and a key manager ([key_manager], [barbican]), which is '
                     'asked with the credentials of [glance].'),
    cfg.ListOpt('trusted_bitstream_certificates', default=[], sample_default='<certificate id>',
                help='Ids in the key manager of the certificates that may sign images, or that '
                     'have signed certificates which may. Unset: every certificate that the key '
                     'manager gives to the user of [glance].'),
    cfg.StrOpt('sysfs_root', default='/sys', help='Where sysfs is mounted.'),
    cfg.BoolOpt(
        'legacy_traits', default=False,
        help='Publish the trait names of older releases too, for device profiles that still '
             'ask for them.'),
]
