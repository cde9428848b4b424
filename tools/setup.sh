#!/bin/bash
# Brings a Debian 12 machine to where everything here builds and runs; does nothing when it is there.
#
# Debian packages come from packages.txt, Python's from requirements.txt. The venv and Bazel's disk
# cache live in the user's cache, so that a second clone finds them; .venv is a link to the former.
set -euo pipefail
cd "$(dirname "$0")/.."

# Debian's own, which packages.txt brings: the same on every machine, whatever else is on PATH.
readonly PYTHON=/usr/bin/python3
readonly STEPS=4

die() {
  printf 'setup: %s\n' "$*" >&2
  exit 1
}

[[ -n "${XDG_CACHE_HOME:-${HOME:-}}" ]] || die "set XDG_CACHE_HOME to a folder for the venv and Bazel's cache"
readonly CACHE="${XDG_CACHE_HOME:-${HOME:-}/.cache}/tensorlightning"
mkdir -p "$CACHE" 2>/dev/null && [[ -w "$CACHE" ]] ||
  die "$CACHE can't be written: set XDG_CACHE_HOME to a folder that can"

step() { printf 'setup %d/%d: %s\n' "$1" "$STEPS" "$2"; }

check_system() {
  local ID=unknown VERSION_ID=unknown
  # shellcheck disable=SC1091
  [[ -r /etc/os-release ]] && . /etc/os-release
  [[ "$ID" == debian && "$VERSION_ID" == 12 ]] ||
    die "this needs Debian 12 (bookworm); this machine says '$ID $VERSION_ID'"
}

missing_packages() {
  local wanted installed
  wanted=$(sed 's/#.*//; /^\s*$/d' packages.txt | sort)
  # shellcheck disable=SC2086
  installed=$(dpkg-query -W -f '${Package} ${db:Status-Status}\n' $wanted 2>/dev/null |
    sed -n 's/ installed$//p' | sort -u || true)
  comm -23 <(echo "$wanted") <(echo "$installed")
}

install_packages() {
  local -a missing root=()
  mapfile -t missing < <(missing_packages)
  ((${#missing[@]})) || return 0
  step 2 "Debian packages: ${missing[*]}"
  if ((EUID != 0)); then
    command -v sudo >/dev/null ||
      die "Debian packages are missing (${missing[*]}), and there is neither root nor sudo to install them"
    root=(sudo)
  fi
  "${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q update
  "${root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get -q install -y --no-install-recommends "${missing[@]}"
}

make_venv() {
  local version key venv
  version=$("$PYTHON" --version)
  [[ "$version" == "Python 3.11."* ]] || die "$PYTHON is $version; this needs Python 3.11"
  key=$( (cat requirements.txt && echo "$version") | sha256sum | cut -c1-16)
  venv="$CACHE/venv-$key"
  # The marker is written last: a venv without it was interrupted, and is made anew.
  if [[ ! -e "$venv/.complete" ]]; then
    step 3 "Python packages: $(grep -c '==' requirements.txt) into a venv in the user's cache"
    rm -rf "$venv"
    "$PYTHON" -m venv "$venv"
    "$venv/bin/python" -m pip install --no-deps --disable-pip-version-check -r requirements.txt
    touch "$venv/.complete"
  fi
  [[ "$(readlink .venv)" == "$venv" ]] || ln -sfn "$venv" .venv
}

configure_bazel() {
  local wanted
  # Not by the link: another venv must be another name, or Bazel would not look at it.
  printf -v wanted '%s\n%s' "build --disk_cache=$CACHE/bazel-disk" \
    "common --repo_env=TF_PYTHON=$(readlink .venv)/bin/python"
  [[ -r user.bazelrc && "$(<user.bazelrc)" == "$wanted" ]] && return
  step 4 "Bazel's disk cache, in the user's cache, and where TensorFlow is"
  echo "$wanted" >user.bazelrc
}

check_system
mkdir -p "$CACHE"
# Two clones may set up at once: the second waits, and then finds everything done.
exec 9>"$CACHE/setup.lock"
flock -n 9 || { echo "setup: waiting for another one to finish" && flock 9; }
step 1 "looking at what is there"
install_packages
make_venv
configure_bazel
echo "setup: everything is in place"
