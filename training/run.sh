#!/bin/sh
# run.sh ARGUMENTS OF training.train: a malloc that keeps its memory makes a step three times faster.
export MALLOC_MMAP_THRESHOLD_=8589934592 MALLOC_TRIM_THRESHOLD_=17179869184 MALLOC_TOP_PAD_=268435456
export OMP_NUM_THREADS=1 PYTHONPATH=src:.
exec nice -n 19 "${PYTHON:-python}" -m training.train "$@"
