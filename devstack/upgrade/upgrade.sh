#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Grenade runs this between two releases: install the new one, migrate, check and start it.

set -o errexit

source "$GRENADE_DIR/grenaderc"
source "$GRENADE_DIR/functions"
source "$TARGET_DEVSTACK_DIR/functions"
source "$TARGET_DEVSTACK_DIR/stackrc"
source "$TARGET_DEVSTACK_DIR/lib/tls"
source "$TARGET_DEVSTACK_DIR/lib/apache"

CYBORG_DEVSTACK_DIR=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
source "$CYBORG_DEVSTACK_DIR/settings"
source "$CYBORG_DEVSTACK_DIR/lib/cyborg"

set -o xtrace

[[ -d "$SAVE_DIR/etc.cyborg" ]] || cp -pr "$CYBORG_CONF_DIR" "$SAVE_DIR/etc.cyborg"

install_cyborg
upgrade_project cyborg "$CYBORG_DEVSTACK_DIR/upgrade" \
    "$BASE_DEVSTACK_BRANCH" "$TARGET_DEVSTACK_BRANCH"

migrate_cyborg
check_cyborg
start_cyborg
# Grenade looks for units of these names.
ensure_services_started cyborg-api cyborg-cond cyborg-agent
