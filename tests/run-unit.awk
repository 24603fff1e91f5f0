# SPDX-License-Identifier: Apache-2.0
# Reads what cmocka printed, prints the tests that failed, and those that are
# refused here, in the form of tests/result.sh, and writes "passed failed skipped" into a file. Variables:
# program; its exit status; lacks, the file of tests that are to fail here; sum,
# that file.
function fail(why,   at)
{
	print "FAILED " program ": " why
	for (at = count > 200 ? count - 200 : 0; at < count; at++)
		print "\t" kept[at]
	bad++
}

BEGIN {
	while ((getline name < lacks) > 0)
		lacking[name]
	count = 0
}

{ kept[count++] = $0 }

/^\[ RUN      \] / {
	test = $4
	count = 0
}

/\[  (FAILED |ERROR  ) \] [A-Za-z_][A-Za-z_0-9]*$/ && $NF == test {
	if (test in lacking)
		excused++
	else
		fail(test)
	test = ""
	count = 0
}

/\[       OK \] [A-Za-z_][A-Za-z_0-9]*$/ && $NF == test {
	if (test in lacking)
		fail(test " passes, which was to fail here")
	else
		ok++
	test = ""
	count = 0
}

# A test that a right is missing for has said so in a line of its own.
/\[  SKIPPED \] [A-Za-z_][A-Za-z_0-9]*$/ && $NF == test {
	skipped++
	why = ""
	for (at = 0; at < count; at++)
		if (kept[at] ~ /^refused: /)
			why = substr(kept[at], 10)
	if (why != "")
		print "refused: " program ": " test ": " why
	test = ""
	count = 0
}

# A crash in a test, or a sanitizer's report behind the last one. cmocka's exit
# status is the number of tests that failed.
END {
	if (test != "")
		fail(test ": exit status " status)
	else if (!bad && (status != excused + 0 || !(ok + skipped + excused)))
		fail("exit status " status)
	print ok + 0, bad + 0, skipped + excused + 0 > sum
}
