#!/usr/bin/env bash
# The cross compiler and qemu: installed from Debian's packages where they are missing and we may, else a line on how.
set -euo pipefail
packages=(g++-aarch64-linux-gnu qemu-user-static)
missing() {
  for tool in aarch64-linux-gnu-g++ aarch64-linux-gnu-objdump qemu-aarch64-static apt-get dpkg-deb; do
    command -v "$tool" > /dev/null || echo "$tool"
  done
}
machine=$(uname -m)
if [ "$machine" != x86_64 ]; then
  echo "aarch64: built and compared on x86_64, this is $machine; on AArch64 itself run make test" >&2
  exit 1
fi
[ -n "$(missing)" ] || exit 0
if command -v apt-get > /dev/null && [ "$(id -u)" = 0 ]; then
  echo "aarch64: installing ${packages[*]}"
  get() {
    DEBIAN_FRONTEND=noninteractive timeout -k 10 600 apt-get -q -q -o Acquire::Retries=2 -o Acquire::http::Timeout=30 \
      -o Acquire::https::Timeout=30 -o DPkg::Lock::Timeout=60 "$@" < /dev/null > /dev/null
  }
  get update && get install -y --no-install-recommends "${packages[@]}" || true
fi
if [ -n "$(missing)" ]; then
  echo "aarch64: missing" $(missing)": apt-get install ${packages[*]} (Debian, as root)" >&2
  exit 1
fi
