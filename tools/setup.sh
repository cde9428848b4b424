#!/bin/bash
# Brings a Debian 12 machine to where everything here builds and runs; does nothing when it is there.
#
# Debian packages come from packages.txt, Python's from requirements.txt, Caffe from an older Debian
# (or it is the user's own, in CAFFE_ROOT). A second, small venv has another Spark, for tests. The
# venvs, Caffe and Bazel's disk cache live in the user's cache, so that a second clone finds them;
# .venv, .venv-spark4 and .caffe are links to the first three.
set -euo pipefail
cd "$(dirname "$0")/.."

# Debian's own, which packages.txt brings: the same on every machine, whatever else is on PATH.
readonly PYTHON=/usr/bin/python3
readonly STEPS=6

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

# A venv in the user's cache, and a link to it: what a list of requirements says. With a lender, also
# everything of that venv that is not in the list.
make_venv() { # step link list [lender]
  local version key venv link=$2 list=$3 lender=${4:-}
  version=$("$PYTHON" --version)
  [[ "$version" == "Python 3.11."* ]] || die "$PYTHON is $version; this needs Python 3.11"
  key=$( (cat "$list" && echo "$version${lender:+ $lender}") | sha256sum | cut -c1-16)
  venv="$CACHE/${link#.}-$key"
  # The marker is written last: a venv without it was interrupted, and is made anew.
  if [[ ! -e "$venv/.complete" ]]; then
    step "$1" "Python packages: $(grep -c '==' "$list") into a venv in the user's cache"
    rm -rf "$venv"
    "$PYTHON" -m venv "$venv"
    "$venv/bin/python" -m pip install --no-deps --disable-pip-version-check -r "$list"
    # Only now: pip must not see what is lent.
    [[ -z "$lender" ]] || echo "$lender/lib/python3.11/site-packages" \
      >"$venv/lib/python3.11/site-packages/lent.pth"
    touch "$venv/.complete"
  fi
  [[ "$(readlink "$link")" == "$venv" ]] || ln -sfn "$venv" "$link"
}

# What tools/caffe/install.sh has to say if it can't is all that is lost: what needs Caffe is skipped.
install_caffe() {
  local key prefix status=0
  if [[ -n "${CAFFE_ROOT:-}" ]]; then
    [[ -d "$CAFFE_ROOT" ]] || die "CAFFE_ROOT is $CAFFE_ROOT, which is no folder"
    [[ "$(readlink .caffe)" == "$CAFFE_ROOT" ]] || ln -sfn "$CAFFE_ROOT" .caffe
    return
  fi
  key=$(cat tools/caffe/*.sh | sha256sum | cut -c1-16)
  prefix="$CACHE/caffe-$key"
  if [[ ! -e "$prefix/.complete" ]]; then
    step 5 "Caffe, as Debian built it, into the user's cache"
    tools/caffe/install.sh "$prefix" || status=$?
    if ((status == 75)); then
      rm -f .caffe
      echo "setup: goes on without Caffe: what needs it is skipped" >&2
      return
    fi
    ((status == 0)) || die "Caffe could not be installed (see above)"
  fi
  [[ "$(readlink .caffe)" == "$prefix" ]] || ln -sfn "$prefix" .caffe
}

configure_bazel() {
  local wanted
  # Not by the link: another venv must be another name, or Bazel would not look at it.
  printf -v wanted '%s\n%s\n%s' "build --disk_cache=$CACHE/bazel-disk" \
    "common --repo_env=TF_PYTHON=$(readlink .venv)/bin/python" \
    "common --repo_env=CAFFE_ROOT=$(readlink .caffe || true)"
  [[ -r user.bazelrc && "$(<user.bazelrc)" == "$wanted" ]] && return
  step 6 "Bazel's disk cache, in the user's cache, and where TensorFlow and Caffe are"
  echo "$wanted" >user.bazelrc
}

check_system
mkdir -p "$CACHE"
# Two clones may set up at once: the second waits, and then finds everything done.
exec 9>"$CACHE/setup.lock"
flock -n 9 || { echo "setup: waiting for another one to finish" && flock 9; }
step 1 "looking at what is there"
install_packages
make_venv 3 .venv requirements.txt
make_venv 4 .venv-spark4 requirements-spark4.txt "$(readlink .venv)"
install_caffe
configure_bazel
echo "setup: everything is in place"
