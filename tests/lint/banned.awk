# SPDX-License-Identifier: Apache-2.0
# The rules of banned.sh. word(where, pattern, instead): `pattern` is banned in
# files whose path matches `where`; allow(pattern, files) are the exceptions.

BEGIN {
	ANY = "\\.[ch]$"
	# Every folder but three: a new route is the library's, too.
	LIBRARY = "^[^/]+/.*\\.[ch]$"
	OTHERS = "^(examples|tests|tools)/"
	CALL = "[ \t]*\\("

	word(ANY, "strcpy" CALL, "snprintf or memcpy with a checked size")
	word(ANY, "stpcpy" CALL, "snprintf or memcpy with a checked size")
	word(ANY, "strncpy" CALL, "snprintf: strncpy may not terminate")
	word(ANY, "strcat" CALL, "snprintf at an offset")
	word(ANY, "strncat" CALL, "snprintf at an offset")
	word(ANY, "sprintf" CALL, "snprintf")
	word(ANY, "vsprintf" CALL, "vsnprintf")
	word(ANY, "gets" CALL, "fgets")
	word(ANY, "strtok" CALL, "strtok_r, or a loop over the bytes")
	word(ANY, "ato(i|l|ll|f)" CALL, "strtol and its kin with end and range checked")
	word(ANY, "alloca" CALL, "an array of constant size, or the arena")
	word(ANY, "s?rand" CALL, "randombytes_buf (keys), a seeded generator (tests)")
	word(ANY, "random" CALL, "randombytes_buf (keys), a seeded generator (tests)")
	word(ANY, "usleep" CALL, "a wait on an event with a deadline; nanosleep in tests")
	word(ANY, "volatile", "_Atomic with an explicit order")
	word(ANY, "atomic_(load|store|exchange|compare_exchange_(weak|strong)|fetch_[a-z]+|flag_test_and_set|flag_clear)" CALL,
	     "the _explicit form with a named order and a label of its partner")
	word(ANY, "(__sync|__atomic)_[a-z_]+" CALL, "<stdatomic.h>, _explicit forms")
	word(ANY, "atomic_(thread|signal)_fence" CALL,
	     "release stores and acquire loads: ThreadSanitizer does not see fences")
	word(ANY, "(clock_gettime|gettimeofday)" CALL, "kvpull_clock_ns of base/clock.h")
	word(ANY, "time" CALL "(NULL|0|&)", "kvpull_clock_ns of base/clock.h")

	word(LIBRARY, "(malloc|calloc|realloc|reallocarray|aligned_alloc|posix_memalign|free)" CALL,
	     "kvpull_arena_take at open")
	word(LIBRARY, "(strdup|strndup|v?asprintf|getline)" CALL, "an array in the arena: it allocates")
	word(LIBRARY, "(v?f?printf|v?dprintf|f?puts|f?putc|putchar|perror)" CALL, "kvpull_log and its levels")
	word(LIBRARY, "(_?exit|quick_exit)" CALL, "an error code, or kvpull_check")
	word(LIBRARY, "strerror(_r|_l)?" CALL, "kvpull_why of base/cause.h: the cause, and what to do")
	word(LIBRARY, "(signal|sigaction)" CALL, "nothing: handlers belong to the engine")
	word(LIBRARY, "(secure_)?getenv" CALL, "a key of plugin/config/config.c")

	allow("atomic_(thread|signal)_fence" CALL, "^include/base/revocation\\.h$")
	allow("(clock_gettime|gettimeofday)" CALL,
	      "^(include/base/clock\\.h|tests/fabric/clock\\.c|tests/unit/share/handle\\.c|tests/unit/verbs/test_verbs_bounds\\.c|tests/unit/cuda/test_cuda_kernel\\.c|tests/unit/device/test_device_apart\\.c)$")
	# jansson parses the configuration at open, on the C heap.
	allow("(malloc|calloc|realloc|reallocarray|aligned_alloc|posix_memalign|free)" CALL,
	      "^(include/base/arena\\.h|plugin/config/config\\.c)$")
	allow("strerror(_r|_l)?" CALL, "^include/base/cause\\.c$")
	allow("(secure_)?getenv" CALL, "^plugin/config/config\\.c$")
}

function word(where, pattern, instead)
{
	rules++
	rule_where[rules] = where
	rule_pattern[rules] = "(^|[^A-Za-z0-9_.>])" pattern
	if (pattern !~ /\)$|\($/)
		rule_pattern[rules] = rule_pattern[rules] "($|[^A-Za-z0-9_])"
	rule_instead[rules] = instead
	by_pattern[pattern] = rules
}

function allow(pattern, where)
{
	rule_allow[by_pattern[pattern]] = where
}

function complain(text)
{
	printf "banned: %s:%d %s\n", FILENAME, FNR, text
	if (!(FILENAME in bad)) {
		bad[FILENAME] = 1
		failed++
	}
}

# The line without comments, strings and character constants.
function code_of(line,    out, text)
{
	out = ""
	while (line != "") {
		if (in_comment) {
			if (!match(line, /\*\//))
				return out
			line = substr(line, RSTART + 2)
			in_comment = 0
			continue
		}
		if (!match(line, /"([^"\\]|\\.)*"|'([^'\\]|\\.)+'|\/\*|\/\//))
			return out line
		text = substr(line, RSTART, RLENGTH)
		out = out substr(line, 1, RSTART - 1) " "
		line = substr(line, RSTART + RLENGTH)
		if (text == "//")
			return out
		if (text == "/*")
			in_comment = 1
	}
	return out
}

FNR == 1 {
	files++
	in_comment = 0
	spdx = 0
	comment_line = 0
	c_file = FILENAME ~ /\.[ch]$/
	first = "files begin with // or # or /* SPDX-License-Identifier: Apache-2.0"
	wants_spdx = FILENAME ~ /\.([ch]|sh|py|awk)$|(^|\/)Makefile$|^\.ci\/run$/
	# Which rules look at this file.
	count = 0
	for (i = 1; c_file && i <= rules; i++)
		if (FILENAME ~ rule_where[i] &&
		    !(rule_where[i] == LIBRARY && FILENAME ~ OTHERS) &&
		    !(i in rule_allow && FILENAME ~ rule_allow[i]))
			active[++count] = i
}

FNR <= 2 && /SPDX-License-Identifier: Apache-2\.0/ {
	spdx = 1
}

wants_spdx && !spdx && (FNR == 2 || FNR == 1 && !/^#!/) {
	complain("has no SPDX line: " first)
	wants_spdx = 0
}

/(^|[^A-Za-z0-9_])(TODO|FIXME|XXX)([^A-Za-z0-9_]|$)/ {
	complain("TODO, FIXME or XXX: open an issue, or do it now")
}

c_file {
	if (index($0, "/*") || in_comment)
		comment_line = FNR
	code = code_of($0)
	# An asm statement is not a volatile object, and this type is the
	# one that the C standard gives a signal handler.
	gsub(/asm[ \t]+(__)?volatile(__)?/, "asm", code)
	gsub(/volatile[ \t]+sig_atomic_t/, "sig_atomic_t", code)
	for (i = 1; i <= count; i++)
		if (code ~ rule_pattern[active[i]]) {
			match(code, rule_pattern[active[i]])
			found = substr(code, RSTART, RLENGTH)
			gsub(/^[^A-Za-z_]+|[ \t(]+$/, "", found)
			complain("\"" found "\": use " rule_instead[active[i]])
		}
	if (code ~ /memory_order_seq_cst/ && FNR - comment_line > 6)
		complain("\"memory_order_seq_cst\": say above it why release and acquire are not enough")
}

END {
	printf "%d passed, %d failed, 0 skipped\n", files - failed, failed
	exit failed > 0
}
