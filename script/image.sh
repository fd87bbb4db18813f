# Images that are made here, without a registry. Sourced after lib.sh, not run. Needs umoci; the first also busybox.

image_architecture() {
  case $(uname -m) in
    x86_64) echo amd64 ;;
    aarch64) echo arm64 ;;
    *) uname -m ;;
  esac
}

# Writes the configuration of the image `latest` in the layout $1; the command is $2, the search path $3.
configure_image() {
  umoci config --image "$1:latest" --config.entrypoint "" --config.cmd "$2" --config.env "PATH=$3" \
    --os linux --architecture "$(image_architecture)"
}

# Makes the OCI layout $1 with the image `latest`: a static busybox in one layer. Uses $2, an absent directory.
make_busybox_image() {
  local layout=$1 bundle=$2 applet
  umoci init --layout "$layout"
  umoci new --image "$layout:latest"
  umoci unpack --image "$layout:latest" "$bundle"
  mkdir -p "$bundle"/rootfs/{bin,etc,tmp,root,dev,proc,sys}
  cp "$(command -v busybox)" "$bundle/rootfs/bin/busybox"
  for applet in $(busybox --list); do
    [ "$applet" = busybox ] || ln -sf busybox "$bundle/rootfs/bin/$applet"
  done
  printf 'root:x:0:0:root:/root:/bin/sh\n' >"$bundle/rootfs/etc/passwd"
  printf 'root:x:0:\n' >"$bundle/rootfs/etc/group"
  umoci repack --image "$layout:latest" "$bundle"
  configure_image "$layout" /bin/sh /bin
  rm -rf "$bundle"
}

# The mirror and the suite this machine installs from, for debootstrap.
debian_mirror() {
  cat /etc/apt/sources.list /etc/apt/sources.list.d/*.list /etc/apt/sources.list.d/*.sources 2>/dev/null |
    awk '$1 == "deb" { for (i = 2; i <= NF; i++) if ($i ~ /^https?:/) { print $i; exit } }
         $1 == "URIs:" && $2 ~ /^https?:/ { print $2; exit }' | head -1
}
debian_suite() { (. /etc/os-release && echo "$VERSION_CODENAME"); }

# Makes the OCI layout $1 with the image `latest`: a Debian root in three layers (the base, more packages, and
# what is removed again, so that there are whiteouts). Uses $2, an absent directory. Needs debootstrap.
make_debian_image() {
  local layout=$1 bundle=$2 root=$2/rootfs
  umoci init --layout "$layout"
  umoci new --image "$layout:latest"
  umoci unpack --image "$layout:latest" "$bundle"
  debootstrap --variant=minbase "$(debian_suite)" "$root" "$(debian_mirror)" >"$bundle/debootstrap.log" 2>&1 ||
    { tail -20 "$bundle/debootstrap.log" >&2; die "debootstrap failed"; }
  umoci repack --refresh-bundle --image "$layout:latest" "$bundle"
  cp /etc/resolv.conf "$root/etc/resolv.conf"
  # apt's own settings of this machine, such as a proxy, hold for the mirror that is this machine's as well.
  mkdir -p "$root/tmp/apt.conf.d"
  cp /etc/apt/apt.conf.d/*[Pp]roxy* "$root/tmp/apt.conf.d/" 2>/dev/null || true
  chroot "$root" apt-get -o Dir::Etc::parts=/tmp/apt.conf.d update -qq >"$bundle/apt.log" 2>&1 || true
  DEBIAN_FRONTEND=noninteractive chroot "$root" apt-get -o Dir::Etc::parts=/tmp/apt.conf.d install -y -qq \
    --no-install-recommends perl python3-minimal curl git >>"$bundle/apt.log" 2>&1 ||
    { tail -20 "$bundle/apt.log" >&2; die "the packages of the second layer cannot be installed"; }
  rm -rf "$root/tmp/apt.conf.d"
  umoci repack --refresh-bundle --image "$layout:latest" "$bundle"
  rm -rf "$root"/var/lib/apt/lists/* "$root"/var/cache/apt/*.bin "$root"/var/cache/apt/archives/*.deb \
    "$root"/usr/share/doc/* "$root"/usr/share/man/*
  umoci repack --refresh-bundle --image "$layout:latest" "$bundle"
  configure_image "$layout" /bin/bash /usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
  rm -rf "$bundle"
}
