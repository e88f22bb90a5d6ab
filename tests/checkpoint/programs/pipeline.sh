#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# A pipeline with short-lived processes, a command substitution and a background job: pipeline.sh STEPS PROGRESS
set -eu -o pipefail
(while :; do sleep 0.05; done) &
background=$!
for ((i = 0; i < $1; i++)); do
    printf . >>"$2"
    echo "line $i $(echo $((i * i)) | tr 0-9 a-j)"
    sleep 0.005
done | while read -r line; do
    echo "${#line} $line"
done | tee >(sha256sum >checksum) | awk '{ total += $1; last = $0 } END { print total, last }'
kill $background
until [[ -s checksum ]]; do sleep 0.01; done # nobody can wait for a process substitution in a pipeline
cat checksum
