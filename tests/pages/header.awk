# SPDX-License-Identifier: Apache-2.0
# A public header as mdoc. what=conventions: the lists of the headers' first
# comments. what=types: constants, structs and callbacks, in their order, with
# what is said of them. calls.py has the calls.

BEGIN {
	LINE_MAX = 75
}

function fail(text)
{
	print "header: " FILENAME ":" FNR ": " text >"/dev/stderr"
	bad = 1
}

# What the formatter would take for its own is escaped.
function escaped(text)
{
	gsub(/\\/, "\\e", text)
	return text ~ /^[.']/ ? "\\&" text : text
}

# As it stands, but for lines that a page of 80 columns has no room for: a remark
# behind code goes before it, and other lines are an error.
function literal(text,    remark, indent)
{
	print ".Bd -literal"
	count = split(text, lines, "\n")
	for (i = 1; i <= count; i++) {
		gsub(/\t/, "  ", lines[i])
		if (length(lines[i]) > LINE_MAX && match(lines[i], / +\/\*.*\*\/$/)) {
			remark = substr(lines[i], RSTART)
			lines[i] = substr(lines[i], 1, RSTART - 1)
			sub(/^ +/, "", remark)
			match(lines[i], /^ */)
			print substr(lines[i], 1, RLENGTH) remark
		}
		if (length(lines[i]) > LINE_MAX)
			fail("a line of more than " LINE_MAX " columns: " lines[i])
		if (lines[i] != "" || i < count)
			print escaped(lines[i])
	}
	print ".Ed"
}

# Running text: a sentence a line, as mdoc likes it.
function sentences(text)
{
	while (match(text, /\. [A-Z]/)) {
		print escaped(substr(text, 1, RSTART))
		text = substr(text, RSTART + 2)
	}
	print escaped(text)
}

function flush_text()
{
	if (held != "")
		sentences(held)
	held = ""
}

# A comment without its stars: paragraphs, "- " lists, and lines that are set
# in, which stay as they are.
function prose(text,    count, i, line, in_list, in_display, gap)
{
	count = split(text, says, "\n")
	for (i = 1; i <= count; i++) {
		line = says[i]
		if (in_display && line !~ /^  /) {
			print ".Ed"
			in_display = 0
		}
		if (line ~ /^- /) {
			flush_text()
			if (!in_list)
				print ".Bl -dash"
			in_list = 1
			print ".It"
			held = substr(line, 3)
		} else if (in_list && line ~ /^  /) {
			held = held " " substr(line, 3)
		} else if (line ~ /^  /) {
			flush_text()
			if (!in_display)
				print ".Bd -literal"
			in_display = 1
			print escaped(substr(line, 3))
		} else if (line == "") {
			flush_text()
			if (in_list)
				print ".El"
			in_list = 0
			gap = 1
		} else {
			if (in_list) {
				flush_text()
				print ".El"
				in_list = 0
			}
			if (gap)
				print ".Pp"
			gap = 0
			if (line ~ /^Return[: ]/ && held != "") {
				flush_text()
				print ".Pp"
			}
			held = held == "" ? line : held " " line
		}
	}
	flush_text()
	if (in_display)
		print ".Ed"
	if (in_list)
		print ".El"
}

function comment_end()
{
	sub(/ *\*\/.*$/, "", comment)
	sub(/[ \t\n]+$/, "", comment)
	sub(/^\n+/, "", comment)
}

# What is said before a display; nothing of its own comes before the first.
function paragraph(text)
{
	if (text == "")
		return
	if (written++)
		print ".Pp"
	prose(text)
}

function constants_end()
{
	if (constants != "" && what == "types") {
		paragraph(comment_before)
		literal(constants)
	}
	constants = comment_before = ""
}

FNR == 1 {
	in_comment = in_struct = in_calls = 0
	comment = ""
	first = 1
}

# Comments of several lines, and those of one that stand alone.
/^\t?\/\*/ && !in_struct {
	constants_end()
	comment = ""
	in_comment = 1
	sub(/^\t?\/\*+ ?/, "")
	if ($0 ~ /^SPDX/) {
		in_comment = 0
		next
	}
	if ($0 ~ /\*\//) {
		comment = $0
		in_comment = 0
		comment_end()
	} else if ($0 != "") {
		comment = $0
	}
	next
}
in_comment {
	if ($0 ~ /\*\//) {
		sub(/^\t? \*\//, "")
		sub(/^\t? \* ?/, "")
		comment = comment "\n" $0
		in_comment = 0
		comment_end()
		if (first && what == "conventions" && comment ~ /\nConventions/) {
			sub(/^.*\nConventions[^\n]*\n/, "", comment)
			prose(comment)
		}
		if (first)
			comment = ""
		first = 0
	} else {
		sub(/^\t? \* ?/, "")
		comment = comment "\n" $0
	}
	next
}

# The tables of calls: calls.py.
/^struct kvpull_[a-z_]+_ops \{/ {
	constants_end()
	in_calls = 1
	comment = ""
	next
}
in_calls && /^};/ {
	in_calls = 0
	next
}
in_calls {
	next
}

/^struct kvpull_[a-z_]+ \{/ {
	constants_end()
	in_struct = 1
	body = $0
	next
}
in_struct {
	body = body "\n" $0
	if ($0 ~ /^};/) {
		in_struct = 0
		if (what == "types") {
			match(body, /kvpull_[a-z_]+/)
			print ".Ss struct " substr(body, RSTART, RLENGTH)
			if (comment != "")
				prose(comment)
			literal(body)
		}
		comment = ""
	}
	next
}

/^#define KVPULL_[A-Z_]+ [^\\]*$/ && !/ERROR_ENUM/ && !/_H$/ {
	if (constants == "") {
		comment_before = comment
		comment = ""
	}
	constants = constants $0 "\n"
	next
}
constants != "" && /^[ \t]/ {
	next
}

/^typedef / || callback != "" {
	constants_end()
	callback = callback == "" ? $0 : callback "\n" $0
	if ($0 ~ /;/) {
		if (what == "types") {
			paragraph(comment)
			literal(callback)
		}
		callback = comment = ""
	}
	next
}

/^$/ {
	constants_end()
}

END {
	exit bad
}
