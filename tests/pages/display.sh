#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A file as mdoc shows it, without its licence line. display.sh FILE
printf '.Bd -literal\n'
sed -e 1d -e 's/\\/\\e/g' -e "s/^[.']/\\\\\&&/" "$1" | expand || exit 1
printf '.Ed\n'
