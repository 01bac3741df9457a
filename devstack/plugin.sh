#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# DevStack sources this file with a mode and a phase.

# shellcheck source=devstack/lib/cyborg
source "$(dirname "${BASH_SOURCE[0]}")/lib/cyborg"

if is_service_enabled cyborg; then
    case "$1 $2" in
        "stack install")
            echo_summary "Installing Cyborg"
            install_cyborg
            ;;
        "stack post-config")
            echo_summary "Configuring Cyborg"
            configure_cyborg
            configure_cyborg_in_nova
            if is_service_enabled key; then
                create_cyborg_accounts
            fi
            ;;
        "stack extra")
            echo_summary "Starting Cyborg"
            init_cyborg
            start_cyborg
            ;;
        "stack test-config")
            if is_service_enabled tempest; then
                iniset "$TEMPEST_CONFIG" service_available cyborg True
                iniset "$TEMPEST_CONFIG" cyborg_policy enforce_new_defaults True
                iniset "$TEMPEST_CONFIG" accelerator min_microversion \
                    "$TEMPEST_ACCELERATOR_MIN_MICROVERSION"
                iniset "$TEMPEST_CONFIG" accelerator max_microversion \
                    "$TEMPEST_ACCELERATOR_MAX_MICROVERSION"
            fi
            ;;
        "unstack ")
            stop_cyborg
            ;;
        "clean ")
            cleanup_cyborg
            ;;
    esac
fi
