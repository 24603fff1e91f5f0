# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh disable=SC2016,SC2034,SC2154
# F13: two real engines on two machines. Guest 1 is P, guest 2 is D and judges
# (tests/engine/guest.py); here is what it cannot do from inside. One boot a
# scenario: a guest's memory is mapped piece by piece, and the pieces that a
# process may have do not last for a second engine.

FABRIC_SCENARIOS="${FABRIC_SCENARIOS:-}
	2:1:vllm:vllm_tokens 2:2:vllm:vllm_rails 2:1:vllm:vllm_other_weights
	2:1:vllm:vllm_identity 2:1:vllm:vllm_networks 2:1:vllm:vllm_key
	2:1:vllm:vllm_memlock 2:1:vllm:vllm_states 2:1:vllm:vllm_recurrent
	2:1:vllm:vllm_cut 2:1:vllm:vllm_killed 2:1:vllm:vllm_tp
	2:1:vllm:vllm_chaos_p 2:1:vllm:vllm_chaos_d"

# As a program of a guest: not the folder that pip or a user has elsewhere.
# User-mode Linux 6.12 takes pages of an io_uring's rings for others when they are
# unmapped ("Bad page map"), and panics or hangs later; an engine over RDMA sleeps
# without one as well, and uvloop does.
vllm_tool='ulimit -s 2048
	echo 2 >/proc/sys/kernel/io_uring_disabled
	head -c 32 /dev/zero >/tmp/key; chmod 600 /tmp/key
	cp -r "$FABRIC_ENGINE/cache" "$FABRIC_SHARE/vllm"
	export TMPDIR=/tmp HOME=/tmp PYTHONDONTWRITEBYTECODE=1
	exec "$FABRIC_PYTHON" "$FABRIC_TREE/tests/engine/guest.py"'

vllm_do() { # what the judge has asked for
	case $1 in
	slow) fabric_switch delay 1.0/tx 80 ;;
	# Less than the 268 ms after which D's device asks again (verbs_ack_timeout 16).
	slower) fabric_switch delay 1.0/tx 200 ;;
	cut) fabric_switch link 1.0 off ;;
	loss) fabric_switch loss 1.0/tx 0.2 ;;
	heal) fabric_switch clear 1.0 && fabric_switch link 1.0 on ;;
	pause) fabric_pause 1 ;;
	continue) fabric_continue 1 ;;
	kill) fabric_kill 1 ;;
	*) false ;;
	esac
}

vllm_run() { # name
	vllm_words="export FABRIC_ENGINE='$FABRIC_ENGINE' FABRIC_PYTHON='$FABRIC_PYTHON'
		$vllm_tool"
	fabric_start 1 "$vllm_words serve '$FABRIC_ENGINE' \"\$FABRIC_SHARE\" $1 \$(address 1)" ||
		return
	vllm_p=$job
	fabric_start 2 "$vllm_words judge '$FABRIC_ENGINE' \"\$FABRIC_SHARE\" $1 \$(address 1) \$(address 2)" ||
		return
	vllm_d=$job
	vllm_asked=1
	vllm_until=$(($(fabric_now_ms) + 900000))
	until fabric_done "$vllm_d"; do
		[ "$(fabric_now_ms)" -lt $vllm_until ] || break
		vllm_ask=$FABRIC_OUT/guest2/ask.$vllm_asked
		if [ -e "$vllm_ask" ]; then
			vllm_do "$(cat "$vllm_ask")" >/dev/null ||
				echo "fabric: $(cat "$vllm_ask"): not done"
			touch "$FABRIC_OUT/guest2/done.$vllm_asked"
			vllm_asked=$((vllm_asked + 1))
		fi
		sleep 0.05
	done
	fabric_wait "$vllm_d" 1
	vllm_code=$?
	sed 's/^/fabric: /' "$(fabric_output "$vllm_d")" | tail -n 120
	if fabric_alive 1; then
		fabric_signal "$vllm_p" TERM
		fabric_wait "$vllm_p" 60 || vllm_code=1
		sed 's/^/fabric: P: /' "$(fabric_output "$vllm_p")" | tail -n 20
	fi
	# The next one's engines want a machine of their own.
	fabric_close
	opened=
	return $vllm_code
}

scenario_vllm_tokens() { vllm_run tokens; }
scenario_vllm_rails() { vllm_run rails; }
scenario_vllm_other_weights() { vllm_run other_weights; }
scenario_vllm_identity() { vllm_run identity; }
scenario_vllm_networks() { vllm_run networks; }
scenario_vllm_key() { vllm_run key; }
scenario_vllm_memlock() { vllm_run memlock; }
scenario_vllm_states() { vllm_run states; }
scenario_vllm_recurrent() { vllm_run recurrent; }
scenario_vllm_cut() { vllm_run cut; }
scenario_vllm_killed() { vllm_run killed; }
scenario_vllm_tp() { vllm_run tp; }
scenario_vllm_chaos_p() { vllm_run chaos_p; }
scenario_vllm_chaos_d() { vllm_run chaos_d; }
