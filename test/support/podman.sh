#!/bin/bash
# Usage: podman.sh start|stop DIRECTORY
# A container engine where there is neither Docker nor a registry of images (Debian, root): `start` builds our image as
# asset-mirror:ci, and serves Docker's API at DIRECTORY/docker.sock. What the Dockerfile begins with is made here under the
# same names: debian:bookworm-slim by debootstrap, node:24-bookworm-slim of that and the npm packages node and npm.
# Containers are meant to use the host's network; limits are not enforced.
set -euo pipefail
cmd=${1:-}; D=${2:-}
[ -n "$cmd" ] && [ -n "$D" ] || { echo "usage: $0 start|stop DIRECTORY" >&2; exit 2; }
source=$(cd "$(dirname "$0")/../.." && pwd)
mkdir -p "$D"; D=$(cd "$D" && pwd)
export CONTAINERS_CONF=$D/containers.conf CONTAINERS_STORAGE_CONF=$D/storage.conf CONTAINERS_REGISTRIES_CONF=$D/registries.conf
certificates=/etc/ssl/certs/ca-certificates.crt

# crun wants control groups of one version, and many build machines mount both: so none are used, and the second version's
# mount is taken away where only podman sees it.
alone() { unshare --mount --propagation private sh -c 'umount /sys/fs/cgroup/unified 2>/dev/null; exec "$@"' sh "$@"; }
build() { alone podman build --isolation chroot --network host --format docker --pull-never -q -v $certificates:$certificates:ro "$@" >/dev/null; }

# Podman would raise what it finds, which root may not do everywhere.
limit() { local most; most=$(ulimit -H "$1"); [ "$most" = unlimited ] || [ "$most" -gt "$2" ] && most=$2; echo "$most:$most"; }

configure() {
  printf '[storage]\ndriver = "overlay"\ngraphroot = "%s/storage"\nrunroot = "%s/run"\n' "$D" "$D" >"$CONTAINERS_STORAGE_CONF"
  printf '[containers]\ncgroups = "disabled"\ndefault_ulimits = ["nofile=%s", "nproc=%s"]\n[engine]\nruntime = "crun"\ncgroup_manager = "cgroupfs"\nevents_logger = "file"\n' \
    "$(limit -n 20000)" "$(limit -u 30000)" >"$CONTAINERS_CONF"
  printf 'unqualified-search-registries = ["docker.io"]\nshort-name-mode = "permissive"\n' >"$CONTAINERS_REGISTRIES_CONF"
}

debian_image() {
  debootstrap --variant=minbase --include=ca-certificates bookworm "$D/debian" >"$D/debootstrap.log"
  rm -rf "$D"/debian/var/cache/apt/archives/*.deb "$D"/debian/var/lib/apt/lists/* "$D"/debian/usr/share/{doc,man,locale}
  tar -C "$D/debian" -c . | alone podman import -q - docker.io/library/debian:bookworm-slim >/dev/null
  rm -rf "$D/debian"
}

node_image() {
  mkdir -p "$D/node/files/bin" "$D/node/files/lib/node_modules"
  npm install --prefix "$D/node" --no-save --no-audit --no-fund node@24 npm@11 >"$D/npm.log"
  cp "$(readlink -f "$D/node/node_modules/node/bin/node")" "$D/node/files/bin/node"
  cp -a "$D/node/node_modules/npm" "$D/node/files/lib/node_modules/npm"
  ln -s ../lib/node_modules/npm/bin/npm-cli.js "$D/node/files/bin/npm"
  rm -rf "$D/node/node_modules"
}

start() {
  configure
  command -v podman >/dev/null && command -v debootstrap >/dev/null ||
    apt-get install -y -qq --no-install-recommends podman crun netavark debootstrap >/dev/null
  debian_image & first=$!; node_image; wait $first
  printf 'FROM debian:bookworm-slim\nENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\nENV NPM_CONFIG_CAFILE=%s\nCOPY files /usr/local\n' $certificates >"$D/node/Dockerfile"
  build -t docker.io/library/node:24-bookworm-slim "$D/node"
  build -t localhost/asset-mirror:ci "$source"
  setsid unshare --mount --propagation private sh -c \
    'umount /sys/fs/cgroup/unified 2>/dev/null; exec podman system service --time=0 "unix://$0"' "$D/docker.sock" </dev/null >"$D/service.log" 2>&1 &
  echo $! >"$D/service.pid"
  for _ in $(seq 100); do
    curl -sf --unix-socket "$D/docker.sock" http://localhost/_ping >/dev/null 2>&1 && return
    sleep 0.1
  done
  echo "the engine does not answer: $(tail -n 3 "$D/service.log")" >&2; exit 1
}

stop() {
  alone podman rm --force --all --time 1 >/dev/null 2>&1 || true
  [ -s "$D/service.pid" ] && kill "$(cat "$D/service.pid")" 2>/dev/null || true
  rm -rf "$D"
}

case $cmd in start | stop) "$cmd" ;; *) echo "usage: $0 start|stop DIRECTORY" >&2; exit 2 ;; esac
