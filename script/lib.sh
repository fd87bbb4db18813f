# What the scripts share. Sourced, not run.

# Debian packages that tests, demo and bench use.
TEST_PACKAGES="protobuf-compiler runc crun containerd docker-registry skopeo umoci busybox-static attr strace jq iptables iproute2 containernetworking-plugins"

say() { printf '%s\n' "== $*"; }

die() {
  printf '%s\n' "error: $*" >&2
  exit 1
}

# Installs those of the named packages that are missing, without starting their services.
install_packages() {
  local missing=()
  local package
  for package in "$@"; do
    dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
  done
  [ ${#missing[@]} -eq 0 ] && return 0
  [ "$(id -u)" = 0 ] || die "missing packages: ${missing[*]}; install them or run as root"
  say "installing ${missing[*]}"
  local policy=/usr/sbin/policy-rc.d made=
  if [ ! -e "$policy" ]; then
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod 755 "$policy"
    made=1
  fi
  local status=0
  apt-get -o DPkg::Lock::Timeout=300 update -qq || true
  DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 install -y -qq --no-install-recommends \
    "${missing[@]}" >/dev/null || status=$?
  [ -z "$made" ] || rm -f "$policy"
  return $status
}

need_cargo() {
  command -v cargo >/dev/null || die "cargo not found: install a Rust toolchain (1.90 or newer)"
}

need_nextest() {
  cargo nextest --version >/dev/null 2>&1 || {
    say "installing cargo-nextest"
    cargo install --locked cargo-nextest
  }
}
