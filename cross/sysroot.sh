#!/usr/bin/env bash
# sysroot.sh DIR VERSION: an AArch64 Python of that version (such as 3.11) in DIR, from Debian's packages as the running
# system's apt sources name them. Needs apt and dpkg-deb, not root; installs nothing on this machine.
set -euo pipefail
dir=$1 version=$2
apt=$dir/apt
rm -rf "$dir"
mkdir -p "$apt/state/lists/partial" "$apt/cache/archives/partial"
apt=$(realpath "$apt")
: > "$apt/status"
get() {
  timeout -k 10 300 apt-get -q -q -o Dir::State="$apt/state" -o Dir::State::status="$apt/status" \
    -o Dir::Cache="$apt/cache" -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o Debug::NoLocking=1 \
    -o APT::Sandbox::User="$(id -un)" -o Acquire::Retries=2 -o Acquire::http::Timeout=30 \
    -o Acquire::https::Timeout=30 -o APT::Update::Error-Mode=any "$@"
}
if ! get update >&2; then
  echo "sysroot: the package lists of these apt sources can't be fetched" >&2
  exit 1
fi
if ! get -y --no-install-recommends --download-only install "python$version" "libpython$version-dev" libstdc++6 >&2; then
  echo "sysroot: no python$version for arm64 from these apt sources; Debian 12 has 3.11, Debian 13 has 3.13" >&2
  exit 1
fi
for package in "$apt"/cache/archives/*.deb; do dpkg-deb -x "$package" "$dir"; done
rm -rf "$apt"
# Python's headers in one folder: Debian keeps pyconfig.h of each architecture aside.
cp -rL "$dir/usr/include/python$version" "$dir/python-headers"
cp "$dir/usr/include/aarch64-linux-gnu/python$version/pyconfig.h" "$dir/python-headers/"
