# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh disable=SC2016,SC2154
# A pool with slots between two machines (pool.c): what is in the owner's file is
# read from afar only when the owner has it in memory again. Uses
# scenario_pull.sh.

FABRIC_SCENARIOS="${FABRIC_SCENARIOS:-}
	2:1:smoke:pool_slots"

pool_said() { # job, words
	grep -q "$2" "$(fabric_output "$1")" 2>/dev/null
}

scenario_pool_slots() {
	fabric_start 1 'export KVPULL_VERBS_ACK_TIMEOUT=16
		exec $FABRIC_BUILD/fabric_pool owner' || return
	pool_owner=$job
	fabric_until 60 pool_said "$pool_owner" '^address ' ||
		pull_says "the owner shares nothing" || return
	pool_address=$(sed -n 's/^address //p' "$(fabric_output "$pool_owner")")
	fabric_start 2 "export KVPULL_VERBS_ACK_TIMEOUT=16
		exec \$FABRIC_BUILD/fabric_pool reader '$pool_address' ${POOL_READS:-10000}" ||
		return
	pool_reader=$job
	fabric_until 60 pool_said "$pool_reader" '^half' ||
		pull_says "the reader has not found half in memory" || return
	fabric_signal "$pool_owner" USR1
	fabric_wait "$pool_reader" 300
	pool_code=$?
	sed 's/^/fabric: /' "$(fabric_output "$pool_reader")"
	fabric_signal "$pool_owner" TERM
	fabric_wait "$pool_owner" 60 || pull_says "the owner ended with $?" ||
		return
	sed -n '/^promoted\|^turns/s/^/fabric: owner: /p' \
		"$(fabric_output "$pool_owner")"
	[ $pool_code -eq 0 ] || pull_says "the reader ended with $pool_code"
}
