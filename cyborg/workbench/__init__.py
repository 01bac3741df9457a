# SPDX-License-Identifier: Apache-2.0
"""What ``cyborg-standalone run`` adds to the services: a web page, a control interface for the
simulated hosts, and stand-ins for Keystone, Nova and Glance that clients can call."""
