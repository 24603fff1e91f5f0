#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The main job: two engines' worth of processes on this machine.
exec "$1/ib_pull" --demo --requests 100
