#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Grenade runs this before the upgrade: stop the services of the old release.

set -o errexit

source "$GRENADE_DIR/grenaderc"
source "$GRENADE_DIR/functions"
source "$BASE_DEVSTACK_DIR/functions"
source "$BASE_DEVSTACK_DIR/stackrc"
source "$BASE_DEVSTACK_DIR/lib/tls"
source "$BASE_DEVSTACK_DIR/lib/apache"

CYBORG_DEVSTACK_DIR=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
source "$CYBORG_DEVSTACK_DIR/settings"
source "$CYBORG_DEVSTACK_DIR/lib/cyborg"

set -o xtrace

stop_cyborg
# Grenade looks for units of these names.
ensure_services_stopped cyborg-api cyborg-cond cyborg-agent
