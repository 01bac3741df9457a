# SPDX-License-Identifier: Apache-2.0
"""The agent, which runs on each compute host."""

from oslo_config import cfg, types

from cyborg.conf import metrics

GROUP = cfg.OptGroup('agent', title='The agent, which runs on each compute host')
#: in the spelling of Placement
UUID = '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$'
OPTS = [
    cfg.ListOpt(
        'enabled_drivers',
        default=[],
        sample_default='nvidia_gpu_driver',
        help='Drivers that discover the devices of this host. Unset: none, and no device is '
        'offered.',
    ),
    cfg.StrOpt(
        'resource_provider_name',
        sample_default='<fqdn>',
        help='Name of the compute node in Placement, which Nova calls the node. The agent also '
        'listens for messages under this name. Unset: the name that libvirt has for this host, '
        'which is the fully qualified name if there is one.',
    ),
    cfg.IntOpt(
        'resync_interval',
        default=60,
        min=1,
        help='Seconds between two discoveries of all devices when no udev event causes one '
        'earlier. It is also the interval of the heartbeats, which are sent independently.',
    ),
    cfg.IntOpt(
        'placement_interval',
        default=600,
        min=0,
        help='Seconds after which the agent compares its resource providers with Placement '
        'although nothing changed on the host, since other services may have claimed or deleted '
        'some. A claimed device is compared at every discovery. 0: never.',
    ),
    cfg.IntOpt(
        'call_monitor_timeout',
        default=20,
        min=2,
        help='Seconds without a sign of life after which the agent stops waiting for a conductor, '
        'and tries again. A conductor that works on a call sends signs of life at half this '
        'interval. The calls of many agents that start together wait in a queue before they are '
        'started: this time must be longer than that.',
    ),
    cfg.FloatOpt(
        'settle_time',
        default=0.1,
        min=0,
        help='Seconds without a udev event after which a burst of events counts as over. The '
        'agent then discovers the devices once for the whole burst.',
    ),
    cfg.IntOpt(
        'driver_timeout',
        default=60,
        min=1,
        help='Seconds after which a call of a driver counts as hung, and a tool that it runs is '
        'killed.',
    ),
    cfg.IntOpt(
        'program_timeout',
        default=600,
        min=1,
        help='Seconds after which fetching an image from Glance is given up, and, counted anew, '
        'after which loading it into a device or its flash counts as hung.',
    ),
    cfg.IntOpt(
        'work_threads',
        default=8,
        min=1,
        help='Number of devices that are prepared, cleaned or programmed in parallel. Each device '
        'has one task at a time.',
    ),
    cfg.IntOpt(
        'max_bitstream_size',
        default=1024,
        min=1,
        help='Largest size in MiB of an image that is loaded into a device.',
    ),
    cfg.IntOpt(
        'bitstream_cache_size',
        default=0,
        min=0,
        help='Size in MiB of the cache of images in state_path. The least recently used images '
        'are removed first. The agent asks Glance at every use whether the image may still be '
        'used. 0: no cache.',
    ),
    cfg.ListOpt(
        'allowed_bitstream_digests',
        default=[],
        sample_default='sha256:<digest>',
        help='Digests of the images that may be loaded on this host, each with its '
        'algorithm: sha256, sha384 or sha512. Unset: all images that the project can see and '
        'that fit the device.',
    ),
    cfg.BoolOpt(
        'verify_bitstream_signatures',
        default=False,
        help='Load only images with a valid signature, as Nova does for its images. Requires the '
        'extra "signatures" and a key manager ([key_manager], [barbican]), which the agent uses '
        'with the credentials of [glance].',
    ),
    cfg.ListOpt(
        'trusted_bitstream_certificates',
        default=[],
        sample_default='<certificate id>',
        help='Ids, in the key manager, of the trusted certificates. An image must be signed by one '
        'of them, or by a certificate that one of them has signed. Unset: every certificate that '
        'the user of [glance] can read.',
    ),
    cfg.StrOpt(
        'libvirt_uri',
        default='qemu:///system',
        help='URI of the libvirt that runs the guests of this host. The agent uses virsh with its '
        'read-only socket.',
    ),
    cfg.IntOpt(
        'libvirt_timeout',
        default=10,
        min=0,
        help='Seconds in which libvirt must list a mediated device that the agent created for a '
        'server. The request is Bound after that, since Nova would otherwise try to create the '
        'device again. The agent does not wait if virsh is not installed or libvirt does not '
        'answer. 0: never wait.',
    ),
    *metrics.options('rounds of discovery, tasks by kind and driver, drivers that fail, and calls'),
    cfg.StrOpt('sysfs_root', default='/sys', help='Where sysfs is mounted.'),
    cfg.ListOpt(
        'adopted_providers',
        default=[],
        item_type=types.String(regex=UUID),
        sample_default='<uuid of a resource provider>',
        help='UUIDs of resource providers below this compute node that another service made, and '
        'that belong to Cyborg although they lack the trait OWNER_CYBORG. The agent takes them '
        'over: those of its devices by their names, and it empties the others. Providers that '
        '"cyborg-manage import" has imported need not be listed. Providers with a trait of Nova, '
        'OWNER_NOVA or COMPUTE_MANAGED_PCI_DEVICE, are not taken over. Never list a provider of '
        'Nova that has neither.',
    ),
    cfg.BoolOpt(
        'legacy_traits',
        default=False,
        help='Publish the trait names of older releases, too, for device profiles that use them.',
    ),
]
