# SPDX-License-Identifier: Apache-2.0
# Reads `nm -A -P` of the library's objects (argument root: their folder) and
# says which files of one room call each other in a circle, and which files that
# call themselves pure ask for more than they may. See rooms.sh.
BEGIN {
	n = split(pure, item, " ")
	for (i = 1; i <= n; i++)
		is_pure[item[i]] = 1
	n = split(allowed, item, " ")
	for (i = 1; i <= n; i++)
		is_allowed[item[i]] = 1
}

# build/release/plugin/hold/hold.o: kvpull_holds_take T 0 1f
{
	file = $1
	sub(/:$/, "", file)
	file = substr(file, length(root) + 2)
	sub(/\.o$/, "", file)
	files[file] = 1
	if ($3 == "U")
		wants[file] = wants[file] " " $2
	else if ($3 ~ /^[TDRB]$/)
		home[$2] = file
}

function room(path)
{
	sub(/\/[^\/]*$/, "", path)
	return path
}

# Ours, and pure too, or of the ground floor.
function is_given(file)
{
	return file && (room(file) == "include/base" || file in is_pure ||
			room(file) in is_pure)
}

# Depth first; a file met again while it is on the way closes a circle.
function visit(file, way,    n, i, next_file, list)
{
	state[file] = 1
	n = split(calls[file], list, " ")
	for (i = 1; i <= n; i++) {
		next_file = list[i]
		if (state[next_file] == 1) {
			print "rooms: a circle of files in " room(file) ": " \
				substr(way, index(way, next_file)) " -> " next_file
			bad[file] = 1
		} else if (!state[next_file]) {
			visit(next_file, way " -> " next_file)
		}
	}
	state[file] = 2
}

END {
	for (file in files) {
		n = split(wants[file], list, " ")
		for (i = 1; i <= n; i++) {
			to = home[list[i]]
			if (to && to != file && room(to) == room(file) &&
			    index(calls[file] " ", " " to " ") == 0)
				calls[file] = calls[file] " " to
			if (!(room(file) in is_pure) && !(file in is_pure))
				continue
			if (!(list[i] in is_allowed) && !is_given(to)) {
				print "rooms: " file " calls itself pure and asks for " list[i]
				bad[file] = 1
			}
		}
	}
	for (file in files) {
		if (!state[file])
			visit(file, file)
		count++
	}
	for (file in bad)
		failed++
	print count - failed " passed, " failed + 0 " failed, 0 skipped"
	exit failed > 0
}
