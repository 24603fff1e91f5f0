#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The command lines of all tools alike: --help in groups and in 80 columns, wrong
# options in one line, the same options in --help and in the manual, and
# completions that bash, zsh and fish take. Argument: the build folder.
set -u
cd "$(dirname "$0")/.." || exit 1
build=$(cd "$1" && pwd)
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
. tests/claim.sh
claim_limit='within 20'
tools='ib_pull kvpull_top kvpull_doctor'

help_fits() { ! grep -E '.{81}' "$work/out"; }

# Options that --help lists, as the manual writes them: name and argument.
listed() { # tool
	"$build/$1" --help | sed -nE 's/^  (-.,|   ) --([a-z-]+)( [A-Z|]+)?.*/\2\3/p' | sort
}

in_the_manual() { # tool
	sed -n '/^\.It Fl /{s/^\.It Fl //; s/ , / /g; s/ Fl / /g; p}' "tools/$1.1" |
		awk '{ for (i = 1; i <= NF; i++) {
				if ($i == "Ar") {
					if (name != "")
						print name " " toupper($(i + 1))
					name = ""; i++
				} else {
					if (name != "") print name
					name = $i ~ /^-/ ? substr($i, 2) : ""
				} }
			if (name != "") print name; name = "" }' | sort
}

manual_has_what_help_lists() { # tool
	listed "$1" >"$work/listed"
	in_the_manual "$1" >"$work/manual"
	[ "$(wc -l <"$work/listed")" -gt 10 ] && diff "$work/listed" "$work/manual"
}

for tool in $tools; do
	claim "$tool --help" 0 "^usage: $tool \[options\]" '^Exit status$' '^  0  +' '^  2  +wrong options$' \
		'^  -h, --help  ' -- "$build/$tool" --help
	check help_fits
	check manual_has_what_help_lists "$tool"
	claim "$tool --version" 0 "^$tool [0-9]+\.[0-9]+\.[0-9]+\$" -- "$build/$tool" --version
	claim "$tool -V" 0 "^$tool [0-9]+\.[0-9]+\.[0-9]+\$" -- "$build/$tool" -V
	claim "$tool, a mistyped option" 2 "^$tool: --jsno is no option; did you mean --json\?\$" -- \
		"$build/$tool" --jsno
	claim "$tool, an option too much" 2 "^$tool: --json=1 takes no value; see --help\$" -- \
		"$build/$tool" --json=1
	claim "$tool, an unknown letter" 2 "^$tool: -z is no option; see --help\$" -- "$build/$tool" -z
	for shell in bash zsh fish; do
		"$build/$tool" --completion $shell >"$work/$tool.$shell"
	done
done
claim 'a mistyped word' 2 "^kvpull_doctor: --route is auto, shm(, [a-z]+)* or [a-z]+, not verb; did you mean verbs\?\$" -- \
	"$build/kvpull_doctor" --route verb
claim 'a mistyped view' 2 "^kvpull_top: a view is .*, not hold; did you mean holds\?\$" -- \
	"$build/kvpull_top" hold
claim 'a size with a suffix' 2 '^ib_pull: --size 2G: a size from 64 to 1G is needed; see --help$' -- \
	"$build/ib_pull" --size 2G
claim 'a time with a suffix' 2 '^kvpull_top: --interval 2m: a time from 100ms to 60000ms is needed; see --help$' -- \
	"$build/kvpull_top" --interval 2m

# Offers of a shell for a line that ends in the word to complete.
bash_offers() { # words
	# shellcheck disable=SC2016 # bash's
	bash -c 'source "$0/$1.bash" && COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) &&
		"_$1" && printf "%s\n" "${COMPREPLY[@]}"' "$work" "$@"
}

fish_offers() { # line
	fish --no-config -c "source $work/${1%% *}.fish; complete -C '$1'" | cut -f 1
}

# zsh completes on a terminal alone. The tools are functions there that say what
# they were given.
cat >"$work/offers.zsh" <<'END'
zmodload zsh/zpty
zpty -b shell zsh -f -i
send() { zpty -w shell "$1"; }
send "PROMPT=; fpath=($1 \$fpath); autoload -U compinit; compinit -D -u; setopt no_beep; zstyle ':completion:*' list-prompts ''"
send "for tool in ib_pull kvpull_top kvpull_doctor; do eval \"\$tool() { print -r -- \\\"GOT \\\$*.\\\" }\"; done; print READY"
seen=
await() { # pattern
	repeat $((250 * TEST_PATIENCE)); do
		while zpty -rt shell line; do seen+=$line; done
		[[ $seen == *$1* ]] && break
		sleep 0.1
	done
}
await $'\n'READY
seen= # what was typed has a GOT, too
send "$2"$'\t'
await GOT
zpty -d shell
print -r -- "$seen"
END
mkdir "$work/zsh"
for tool in $tools; do
	cp "$work/$tool.zsh" "$work/zsh/_$tool"
done

zsh_completes() { # line, what it becomes
	within 60 zsh -f "$work/offers.zsh" "$work/zsh" "$1" | tr -d '\r' >"$work/got"
	cat -v "$work/got"
	grep -q "GOT $2 *\.$" "$work/got"
}

claim_limit= # functions
for tool in $tools; do
	claim "bash takes the completion of $tool" 0 '^--json$' '^--help$' -- bash_offers "$tool" --
	claim "fish takes the completion of $tool" 0 '^--json$' '^--help$' -- fish_offers "$tool --"
	claim "zsh takes the completion of $tool" 0 -- zsh -n "$work/$tool.zsh"
	check zsh_completes "$tool --jso" --json
done
claim 'bash, a word' 0 '^verbs$' -- bash_offers kvpull_doctor --route ve
claim 'bash, a word behind =' 0 '^qwen3-8b$' -- bash_offers ib_pull --model = q
claim 'bash, a view' 0 '^findings$' -- bash_offers kvpull_top f
claim 'bash, a folder' 0 "^$work/zsh\$" -- bash_offers ib_pull "$work/zs"
claim 'fish, a word' 0 '^verbs$' -- fish_offers 'kvpull_doctor --route ve'
claim 'fish, a view' 0 '^findings$' -- fish_offers 'kvpull_top f'
check zsh_completes 'kvpull_doctor --route ve' '--route verbs'
check zsh_completes 'kvpull_top find' findings

echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
