# SPDX-License-Identifier: Apache-2.0
"""Descriptions of hosts: what they may say, and the sentence for what they may not."""

import pytest

from cyborg import errors
from cyborg.accelerator import pci
from cyborg.sim import Host, description

CARD = "{model: '10de:1eb8', at: '0000:3b:00.0'}"


@pytest.fixture
def build(tmp_path):
    """The host that a text describes."""

    def build(text):
        path = tmp_path / 'host.yaml'
        path.write_text(text)
        return Host.described(tmp_path / 'sys', path)

    return build


class TestMistakes:
    @pytest.mark.parametrize(
        ('text', 'why'),
        [
            ('- just a list', 'host.yaml describes no host: it has no cards'),
            ('', 'host.yaml describes no host'),
            ('cards: [', 'host.yaml is not YAML in line 1'),
            ('cards: \x07', 'host.yaml is not YAML'),
            ('card: []', "'card' was unexpected"),
            ('cards: [{at: here}]', 'cards.0'),
            ("cards: [{at: '0000:3b:00.0'}]", 'cards.0: .* is not valid'),
            ('cards: [{at: 0000:12:00.0, model: "10de:1eb8"}]', 'cards.0.at: .* is not of type'),
            (f'cards: [{CARD[:-1]}, class: 030200}}]', 'cards.0.class: 12416'),
            (f'cards: [{CARD[:-1]}, sriov: {{total: 4}}}}]', "'offset' is a required property"),
            (f'cards: [{CARD}, {CARD}]', 'There is a card at 0000:3b:00.0 already'),
            (f'cards: [{CARD[:-1]}, vfs: 3}}]', 'cannot have 3 virtual functions'),
            (
                f'cards: [{CARD[:-1]}, mdev: 5}}]',
                'NVIDIA T4 at 0000:3b:00.0 has a missing or wrong fact',
            ),
            (f'cards: [{CARD}]\nbound: {{"0000:af:00.0": nvidia}}', 'cannot be built as described'),
            (
                f'cards: [{CARD}]\nmediated: {{no-uuid: {{at: "0000:3b:00.0", type: nvidia-222}}}}',
                'cannot be built as described',
            ),
            ('files: {/etc/passwd: x}', 'files'),
            ('files: {class/../../x: y}', 'files'),
            ("links: {'..': x}", 'links'),
        ],
    )
    def test_each_is_one_sentence(self, build, text, why):
        with pytest.raises(errors.ConfigError, match=why) as caught:
            build(text)
        assert '\n' not in caught.value.faultstring

    def test_a_file_that_is_not_there(self, tmp_path):
        with pytest.raises(errors.ConfigError, match='cannot be read: No such file'):
            description.load(tmp_path / 'absent.yaml')

    def test_a_directory_that_is_no_tree_of_ours(self, tmp_path):
        with pytest.raises(errors.ConfigError, match='was not built by cyborg-sim'):
            description.load(tmp_path)


class TestHosts:
    def test_a_card_may_stand_for_itself(self, build):
        host = build("cards: [{vendor: 10de, device: 1eb8, class: '030200', at: '0000:3b:00.0'}]")
        card = pci.Function.at(host.sysfs, '0000:3b:00.0')
        assert (card.vendor, card.driver, card.has('mdev_supported_types')) == ('10de', None, False)

    def test_functions_may_share_a_group(self, build):
        host = build(
            f"cards: [{CARD}, {{model: '10de:10f8', at: '0000:3b:00.1'}}]\n"
            "groups: {'0000:3b:00.0': 7, '0000:3b:00.1': 7}"
        )
        gpu, audio = (pci.Function.at(host.sysfs, f'0000:3b:00.{n}') for n in range(2))
        assert gpu.iommu_group == audio.iommu_group == '7'
        members = (host.sysfs / 'kernel/iommu_groups/7/devices').children()
        assert [each.name for each in members] == ['0000:3b:00.0', '0000:3b:00.1']
        host.pull_out('0000:3b:00.0')
        assert audio.iommu_group == '7'
        host.pull_out('0000:3b:00.1')
        assert not host.sysfs.has('kernel/iommu_groups/7')

    def test_a_function_may_be_bound_otherwise(self, build):
        host = build(
            f"cards: [{CARD}, {{model: '10de:20b5', at: '0000:af:00.0'}}]\n"
            "bound: {'0000:af:00.4': vfio-pci, '0000:af:00.5': null}"
        )
        assert [pci.Function.at(host.sysfs, f'0000:af:00.{n}').driver for n in (4, 5, 6)] == [
            'vfio-pci',
            None,
            'nvidia',
        ]

    def test_virtual_functions_go_when_their_card_is_bound_otherwise(self, build):
        host = build(
            "cards: [{model: '8086:4940', at: '0000:6b:00.0', vfs: 4}]\n"
            "bound: {'0000:6b:00.0': vfio-pci}"
        )
        card = pci.Function.at(host.sysfs, '0000:6b:00.0')
        assert (card.driver, card.virtual_functions, card.read('sriov_numvfs')) == (
            'vfio-pci',
            {},
            '0',
        )

    def test_a_rule_that_makes_virtual_functions_can_be_told(self, build):
        host = build("cards: [{model: '8086:4940', at: '0000:6b:00.0', vfs: 4, vfs_by_rule: true}]")
        host.reboot()
        assert len(pci.Function.at(host.sysfs, '0000:6b:00.0').virtual_functions) == 4

    def test_files_lie_over_what_is_simulated(self, build):
        host = build(f"""
cards: [{CARD}]
files:
  bus/pci/devices/0000:3b:00.0/numa_node: '3'
  bus/pci/devices/0000:3b:00.0/irq: null
  bus/pci/devices/0000:3b:00.0/acme/acme0/serial: abc
  bus/pci/devices/0000:3b:00.0/empty/: ''
  firmware/version: '7'
links:
  class/acme/acme0: bus/pci/devices/0000:3b:00.0/acme/acme0
  bus/pci/devices/0000:3b:00.0/firmware_node: devices/LNXSYSTM:00
""")
        card = pci.Function.at(host.sysfs, '0000:3b:00.0')
        for _ in range(2):
            assert (card.numa_node, card.has('irq'), card.has('empty')) == (3, False, True)
            assert host.sysfs.read('class/acme/acme0/serial') == 'abc'
            assert card.link('firmware_node').name == 'LNXSYSTM:00'
            assert host.sysfs.read('firmware/version') == '7'
            host.pull_out('0000:3b:00.0')
            assert (host.sysfs / 'class/acme').children() == []
            host.plug_in('10de:1eb8', at='0000:3b:00.0')
        host.reboot()
        assert host.sysfs.read('class/acme/acme0/serial') == 'abc'

    def test_what_can_be_written_still_can(self, build):
        host = build(
            "cards: [{model: '8086:4940', at: '0000:6b:00.0'}]\n"
            'files: {bus/pci/devices/0000:6b:00.0/qat/state: down}'
        )
        card = pci.Function.at(host.sysfs, '0000:6b:00.0')
        assert card.read('qat/state') == 'down'
        card.write('qat/state', 'up')
        assert card.read('qat/state') == 'up'

    def test_a_tree_remembers_what_it_was_made_from(self, build, tmp_path):
        build(f'cards: [{CARD}]')
        assert Host.described(tmp_path / 'copy', tmp_path / 'sys').cards == {
            '0000:3b:00.0': 'NVIDIA T4'
        }
