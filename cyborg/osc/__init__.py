# SPDX-License-Identifier: Apache-2.0
"""Commands of ``openstack accelerator`` that python-openstackclient does not have.

They are entry points of its group ``openstack.accelerator.v2`` and use its client. Each request
names the microversion that it needs, whatever the user's default is.
"""
